// Requests to the server, and what may go wrong with them.

import {t} from './texts';
import type {Failure} from './types';

/** An error with what the reader can do about it. */
export class RequestError extends Error {
  constructor(readonly failure: Failure) {
    super(failure.message);
  }
}

const KEY = 'qwen-key';

/** The API key: in this tab, or in this browser if the reader wants so. It is
 * only ever sent in a header, to the server that the page came from. */
export const key = {
  get(): string {
    try {
      return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? '';
    } catch {
      return '';
    }
  },
  get isRemembered(): boolean {
    try {
      return localStorage.getItem(KEY) !== null;
    } catch {
      return false;
    }
  },
  set(value: string, remember: boolean): void {
    key.forget();
    (remember ? localStorage : sessionStorage).setItem(KEY, value);
  },
  forget(): void {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
  },
};

function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

/** The failure that an answer with an error status tells. */
async function failureOf(response: Response): Promise<Failure> {
  const body = (await response.json().catch(() => null)) as {error?: {[name: string]: unknown}} | null;
  const error = body?.error ?? {};
  const message = typeof error['message'] === 'string' ? error['message'] : `${response.status} ${response.statusText}`;
  if (response.status === 401) return {kind: 'key', message: key.get() ? t.keyWrong : t.keyNeeded};
  if (response.status === 503) return {kind: 'unreachable', message};
  if (response.status === 429) {
    const seconds = Number(response.headers.get('Retry-After'));
    return {kind: 'busy', message, retryAfter: seconds >= 1 && seconds <= 600 ? Math.ceil(seconds) : 3};
  }
  if (error['code'] === 'context_length_exceeded') {
    const failure: Failure = {kind: 'too-long', message};
    if (typeof error['n_prompt_tokens'] === 'number') failure.tokens = error['n_prompt_tokens'];
    if (typeof error['n_ctx'] === 'number') failure.context = error['n_ctx'];
    return failure;
  }
  return {kind: 'refused', message};
}

async function ask(path: string, options: RequestInit): Promise<Response> {
  const headers = new Headers(options.headers);
  if (key.get()) headers.set('Authorization', `Bearer ${key.get()}`);
  let response: Response;
  try {
    response = await fetch(path, {...options, headers, credentials: 'omit', referrerPolicy: 'no-referrer'});
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new RequestError({kind: 'unreachable', message: t.unreachable});
  }
  if (!response.ok) throw new RequestError(await failureOf(response));
  return response;
}

export async function getJson(path: string): Promise<unknown> {
  return (await ask(path, {})).json();
}

export async function getText(path: string): Promise<string> {
  return (await ask(path, {})).text();
}

/** The data of each event of a streamed answer, as text. Throws if the stream
 * ends before its last event. */
export async function* postForEvents(path: string, body: string, signal: AbortSignal): AsyncGenerator<string> {
  const headers = {'Content-Type': 'application/json'};
  const response = await ask(path, {method: 'POST', headers, body, signal});
  const died = () => new RequestError({kind: 'died', message: t.died});
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    let read: ReadableStreamReadResult<string>;
    try {
      read = await reader.read();
    } catch (error) {
      if (isAbort(error) || signal.aborted) throw error;
      throw died();
    }
    if (read.done) throw died();
    const lines = (rest + read.value).split(/\r?\n/);
    rest = lines.pop() ?? '';
    // Each event of the server has one line of data; comments keep a
    // connection alive.
    for (const line of lines) {
      if (!line.startsWith('data:')) continue;
      const data = line.slice(5).trim();
      if (data === '[DONE]') return;
      yield data;
    }
  }
}

/** The text of a request with a seed of 64 bits, which no number of JavaScript
 * holds. */
export function withSeed(body: object, seed: string, indent = 0): string {
  if (!/^-?\d{1,20}$/.test(seed)) return JSON.stringify(body, null, indent);
  const text = JSON.stringify({...body, seed: 0}, null, indent);
  // The seed is the last member; only spaces and a brace follow it.
  return text.replace(/0(\s*\})$/, `${seed}$1`);
}

/** The requests that run and that wait, as the server counts them. */
export async function load(): Promise<{running: number; waiting: number} | null> {
  const text = await getText('metrics').catch(() => '');
  const value = (name: string) => {
    const match = new RegExp(`^vllm:${name}(?:\\{[^\\n]*\\})? ([\\d.e+]+)$`, 'm').exec(text);
    return match ? Number(match[1]) : NaN;
  };
  const counts = {running: value('num_requests_running'), waiting: value('num_requests_waiting')};
  return Number.isFinite(counts.running + counts.waiting) ? counts : null;
}

export interface Model {
  id: string;
  context: number;
  /** Where the server has several: whether it is loaded, and how much of its
   * load is done, from 0 to 1. */
  state?: string;
  progress?: number;
}

export async function listModels(): Promise<Model[]> {
  interface Listed {
    id?: unknown;
    max_model_len?: unknown;
    status?: {value?: unknown; progress?: unknown};
  }
  const answer = (await getJson('v1/models')) as {data?: Listed[]};
  return (answer.data ?? []).flatMap(({id, max_model_len: context, status}) => {
    if (typeof id !== 'string') return [];
    const model: Model = {id, context: typeof context === 'number' ? context : 0};
    if (typeof status?.value === 'string') model.state = status.value;
    if (typeof status?.progress === 'number') model.progress = status.progress;
    return [model];
  });
}
