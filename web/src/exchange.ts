// Conversations as files: the request that `qwen-run chat` saves and loads.

import {withSeed} from './api';
import {messagesOf} from './generation';
import type {Schema} from './schema';
import {newId, type Conversation, type Message, type Settings, type Value} from './types';

/** The text of a file with the branch that is shown. It has no key. */
export function exportText(conversation: Conversation, path: readonly Message[]): string {
  const messages = messagesOf(path, conversation.system) as {role: string; content: string; reasoning_content?: string}[];
  const offset = messages.length - path.length;
  path.forEach((message, i) => {
    if (message.reasoning) messages[offset + i]!.reasoning_content = message.reasoning;
  });
  const seed = conversation.seed || [...path].reverse().find((message) => message.origin?.seed)?.origin?.seed || '';
  return withSeed({messages, ...conversation.settings}, seed, 2);
}

function textOf(content: unknown): string | null {
  if (typeof content === 'string') return content;
  if (content === null || content === undefined) return '';
  if (!Array.isArray(content)) return null;
  const texts = content.map((part: unknown) => (part as {text?: unknown} | null)?.text);
  return texts.every((text) => typeof text === 'string') ? texts.join('') : null;
}

/** The words of an error are those of the file, which are not translated. */
export function importText(text: string, name: string): {conversation: Conversation; messages: Message[]} {
  // The seed has up to 64 bits, so it is read as text.
  const body: unknown = JSON.parse(text.replace(/("seed"\s*:\s*)(-?\d+)/g, '$1"$2"'));
  if (typeof body !== 'object' || body === null || Array.isArray(body)) throw new Error('no object');
  const {messages: list, seed, model: _, ...rest} = body as {[name: string]: unknown};
  if (!Array.isArray(list)) throw new Error('no "messages"');
  const now = Date.now();
  const conversation: Conversation = {
    id: newId(),
    title: name.replace(/\.json$/i, ''),
    created: now,
    updated: now,
    model: '',
    system: '',
    settings: {},
    seed: typeof seed === 'string' && seed !== '-1' ? seed : '',
    leaf: null,
  };
  const isOwn = new Set(['stream', 'stream_options', 'return_progress', 'logprobs', 'top_logprobs']);
  for (const [key, value] of Object.entries(rest)) if (value !== null && !isOwn.has(key)) (conversation.settings as Settings)[key] = value as Value;
  const messages: Message[] = [];
  list.forEach((each: unknown, i) => {
    const {role, content, reasoning_content: reasoning} = (each ?? {}) as {[name: string]: unknown};
    const read = textOf(content);
    if (read === null) throw new Error(`messages[${i}] has no text`);
    if (role === 'system' || role === 'developer') {
      if (i > 0) throw new Error(`messages[${i}] is a system message after others`);
      conversation.system = read;
      return;
    }
    if (role !== 'user' && role !== 'assistant') throw new Error(`messages[${i}] has another role`);
    const message: Message = {
      id: newId(),
      conversation: conversation.id,
      parent: conversation.leaf,
      role,
      created: now + i,
      text: read,
    };
    if (typeof reasoning === 'string' && reasoning) message.reasoning = reasoning;
    if (role === 'assistant') message.finish = 'stop';
    messages.push(message);
    conversation.leaf = message.id;
  });
  if (messages.length === 0 && !conversation.system) throw new Error('no messages');
  return {conversation, messages};
}

/** Removes settings that the server lacks. Returns their names, or the first of
 * many. */
export function dropUnknown(settings: Settings, schema: Schema): string {
  const most = 8;
  const unknown = Object.keys(settings).filter((name) => !schema.names.has(name));
  for (const name of unknown) delete settings[name];
  const names = unknown.slice(0, most).map((name) => (name.length > 40 ? `${name.slice(0, 40)}…` : name));
  return names.join(', ') + (unknown.length > most ? ', …' : '');
}

/** Gives the reader a file. */
export function saveFile(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  const link = document.createElement('a');
  link.href = url;
  link.download = name.replace(/[^\p{L}\p{N} ._-]+/gu, '').trim().slice(0, 60) + '.json';
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
