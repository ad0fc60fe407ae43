// The parameters of requests, as /openapi.json tells them. The page has no
// list of samplers: a new one of the server appears here by itself.

import {getJson} from './api';
import type {Settings, Value} from './types';

export type Kind = 'number' | 'integer' | 'boolean' | 'choice' | 'text' | 'lines' | 'json';

/** A parameter that the reader may set. */
export interface Field {
  name: string;
  help: string;
  kind: Kind;
  group: string;
  least?: number;
  most?: number;
  choices?: Value[];
  standard?: Value;
}

export interface Preset {
  name: string;
  description: string;
  settings: Settings;
}

export interface Schema {
  /** All parameters of a request, also those that are no fields. */
  names: ReadonlySet<string>;
  fields: Field[];
  presets: Preset[];
  /** Whether the model reasons, and may be told not to. */
  canThink: boolean;
}

type Json = {[name: string]: unknown};
const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Parameters that the page sets itself, or that have no meaning for a reader. */
const OWN = new Set([
  'model', 'messages', 'seed', 'stream', 'stream_options', 'return_progress', 'logprobs', 'top_logprobs', 'reasoning_format',
  'return_tokens_as_token_ids', 'return_token_ids', 'add_generation_prompt', 'continue_final_message', 'cache_salt',
  'priority', 'truncate_prompt_tokens', 'chat_template_kwargs', 'reasoning_effort', 'enable_thinking',
  'preserve_thinking', 'response_format', 'tools', 'tool_choice', 'parallel_tool_calls',
  'include_stop_str_in_output', 'skip_special_tokens',
]); // prettier-ignore

/** The schema of a value besides null. */
function valueSchema(schema: Json): Json {
  const any = schema['anyOf'];
  if (!Array.isArray(any)) return schema;
  const others = any.filter((each): each is Json => isObject(each) && each['type'] !== 'null');
  return others.length === 1 ? valueSchema(others[0]!) : {anyOf: others};
}

function isStrings(schema: Json): boolean {
  const any = schema['anyOf'];
  if (Array.isArray(any)) return any.length > 0 && any.every((each) => isObject(each) && (each['type'] === 'string' || isStrings(each)));
  return schema['type'] === 'array' && isObject(schema['items']) && schema['items']['type'] === 'string';
}

function kindOf(schema: Json, choices: Value[]): Kind | null {
  if (choices.length > 0) return choices.length > 1 ? 'choice' : null;
  if ('const' in schema) return null;
  if (isStrings(schema)) return 'lines';
  switch (schema['type']) {
    case 'number':
    case 'integer':
    case 'boolean':
      return schema['type'];
    case 'string':
      return 'text';
    case 'object':
    case 'array':
      return 'json';
    default:
      return null;
  }
}

/** `isGrouped`: whether the server tells which parameters are of the sampler. */
function fieldOf(name: string, property: Json, isGrouped: boolean): Field | null {
  const help = typeof property['description'] === 'string' ? property['description'] : '';
  const marked = property['x-group'];
  // Other names of a parameter, and those that do nothing.
  if (OWN.has(name) || !help || /^(The same as|Accepted without)/.test(help)) return null;
  const schema = valueSchema(property);
  const all = Array.isArray(schema['enum']) ? (schema['enum'] as Value[]).filter((value) => value !== null) : [];
  const kind = kindOf(schema, all);
  if (!kind) return null;
  const isNumber = kind === 'number' || kind === 'integer';
  const group = typeof marked === 'string' ? marked : isNumber && !isGrouped ? 'sampling' : 'answer';
  const field: Field = {name, help, kind, group};
  if (typeof schema['minimum'] === 'number') field.least = schema['minimum'];
  if (typeof schema['maximum'] === 'number') field.most = schema['maximum'];
  if (all.length > 0) field.choices = all;
  const standard = property['default'] ?? schema['default'];
  if (standard !== undefined && standard !== null) field.standard = standard as Value;
  return field;
}

function presetsOf(description: Json): Preset[] {
  const presets = description['x-presets'];
  if (!Array.isArray(presets)) return [];
  return presets.flatMap((each: unknown) => {
    if (!isObject(each) || typeof each['name'] !== 'string' || !isObject(each['settings'])) return [];
    const text = typeof each['description'] === 'string' ? each['description'] : '';
    return [{name: each['name'], description: text, settings: each['settings'] as Settings}];
  });
}

/** The parameters of a conversation in a description of the API. */
export function readSchema(description: unknown): Schema {
  let at: unknown = description;
  const way = ['paths', '/v1/chat/completions', 'post', 'requestBody', 'content', 'application/json', 'schema', 'properties'];
  for (const name of way) at = isObject(at) ? at[name] : undefined;
  const properties = isObject(at) ? at : {};
  const isGrouped = Object.values(properties).some((each) => isObject(each) && 'x-group' in each);
  const fields = Object.entries(properties).flatMap(([name, property]) => {
    const field = isObject(property) ? fieldOf(name, property, isGrouped) : null;
    return field ? [field] : [];
  });
  const budget = properties['thinking_token_budget'];
  const canThink = isObject(budget) && !('const' in valueSchema(budget));
  return {names: new Set(Object.keys(properties)), fields, presets: isObject(description) ? presetsOf(description) : [], canThink};
}

/** The schema of a model, or of all models of the server. */
export async function loadSchema(model?: string): Promise<Schema> {
  const query = model === undefined ? '' : `?model=${encodeURIComponent(model)}`;
  return readSchema(await getJson(`openapi.json${query}`));
}
