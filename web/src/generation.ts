// One answer: the request, its events, and what the reader sees of it so far.

import {listModels, load, postForEvents, RequestError, withSeed, type Model} from './api';
import {newId, type Message, type Origin, type Settings} from './types';

export type Phase = 'waiting' | 'reading' | 'writing' | 'done';

/** An answer that is being made. */
export interface Live {
  phase: Phase;
  message: Message;
  /** Tokens of the prompt that have run, and all of them. */
  progress?: {done: number; total: number};
  /** The load of a server that lets the request wait. */
  queue?: {running: number; waiting: number};
  /** The model, while the server loads it. */
  loading?: Model;
  /** Whether the text is this try's: that of an earlier try stays until then. */
  hasBegun: boolean;
}

/** The text of a message in a prompt: with its files. */
export function promptText(message: Message): string {
  const files = (message.files ?? []).map((file) => {
    // A fence that is longer than each of the file's.
    const longest = Math.max(2, ...Array.from(file.text.matchAll(/`+/g), (match) => match[0].length));
    const fence = '`'.repeat(longest + 1);
    return `${file.name}:\n${fence}\n${file.text.replace(/\n$/, '')}\n${fence}`;
  });
  return [...files, message.text].filter(Boolean).join('\n\n');
}

/** The messages of a request. */
export function messagesOf(path: readonly Message[], system: string, start?: string): object[] {
  const from = Math.max(0, path.findIndex((message) => message.id === start));
  const messages: object[] = system ? [{role: 'system', content: system}] : [];
  for (const message of path.slice(from)) messages.push({role: message.role, content: promptText(message)});
  return messages;
}

/** The body of a request for an answer to the last message of `path`. */
export function bodyOf(path: readonly Message[], origin: Origin, more: Settings = {}): string {
  const body = {
    model: origin.model,
    messages: messagesOf(path, origin.system, origin.start),
    ...origin.settings,
    stream: true,
    stream_options: {include_usage: true, continuous_usage_stats: true},
    ...more,
  };
  return withSeed(body, origin.seed);
}

/** The members of an event that the page reads. */
export interface Chunk {
  error?: {message?: string};
  choices?: {
    index?: number;
    delta?: {content?: string | null; reasoning_content?: string | null};
    finish_reason?: string | null;
    /** The score of a beam. */
    x_score?: number;
    logprobs?: {content?: TokenEntry[]} | null;
  }[];
  usage?: {
    prompt_tokens?: number;
    completion_tokens?: number;
    prompt_tokens_details?: {cached_tokens?: number};
    completion_tokens_details?: {reasoning_tokens?: number};
  } | null;
  timings?: {predicted_per_second?: number};
  prompt_progress?: {total?: number; processed?: number; cache?: number};
}

export interface TokenEntry {
  token: string;
  logprob: number;
  bytes?: number[] | null;
  top_logprobs?: TokenEntry[];
}

/** Reads an event. A seed is text: it has up to 64 bits. */
export function readChunk(data: string): {chunk: Chunk; seed: string} {
  const seed = /"x_seed":\s*(\d{1,20})/.exec(data)?.[1] ?? '';
  let chunk: Chunk;
  try {
    chunk = JSON.parse(data) as Chunk;
  } catch {
    throw new RequestError({kind: 'died', message: data.slice(0, 200)});
  }
  if (chunk.error) throw new RequestError({kind: 'died', message: chunk.error.message ?? data.slice(0, 200)});
  return {chunk, seed};
}

/** Writes answers. `message` is the first choice; `others` gets the further
 * ones, which are siblings of it. `changed` is called for each event. */
export class Generation {
  readonly live: Live;
  readonly others: Message[] = [];
  private readonly abort = new AbortController();
  private firstToken = 0;

  constructor(
    readonly message: Message,
    private readonly path: readonly Message[],
    private readonly changed: () => void,
  ) {
    this.live = {phase: 'waiting', message, hasBegun: false};
  }

  stop(): void {
    this.abort.abort();
  }

  /** Runs to the end; never throws: failures are in the message. */
  async run(): Promise<void> {
    const {message} = this;
    delete message.failure;
    delete message.finish;
    const asking = setInterval(() => void this.askForLoad(), 2000);
    try {
      const body = bodyOf(this.path, message.origin!, {return_progress: true});
      for await (const data of postForEvents('v1/chat/completions', body, this.abort.signal)) {
        this.read(data);
        this.changed();
      }
      for (const each of [message, ...this.others]) each.finish ??= 'stop';
    } catch (error) {
      if (this.abort.signal.aborted) {
        message.finish = 'stopped';
      } else {
        message.finish = 'failed';
        message.failure =
          error instanceof RequestError ? error.failure : {kind: 'died', message: String(error).slice(0, 200)};
      }
      for (const each of this.others) each.finish ??= 'stopped';
    } finally {
      clearInterval(asking);
    }
    if (this.others.length > 0) message.origin!.choice = 0;
    this.live.phase = 'done';
    this.changed();
  }

  private async askForLoad(): Promise<void> {
    if (this.live.phase !== 'waiting') return;
    const [counts, models] = await Promise.all([load(), listModels().catch(() => [])]);
    if (counts && counts.waiting > 0) this.live.queue = counts;
    const model = models.find(({id}) => id === this.message.origin!.model);
    if (model?.state === 'loading') this.live.loading = model;
    else delete this.live.loading;
    this.changed();
  }

  private read(data: string): void {
    const {chunk, seed} = readChunk(data);
    const {message, live} = this;
    if (seed) message.origin!.seed = seed;
    if (chunk.prompt_progress) {
      live.phase = 'reading';
      live.progress = {done: chunk.prompt_progress.processed ?? 0, total: chunk.prompt_progress.total ?? 0};
    }
    for (const choice of chunk.choices ?? []) {
      const to = this.choice(choice.index ?? 0);
      const text = choice.delta?.content ?? '';
      const reasoning = choice.delta?.reasoning_content ?? '';
      if (text || reasoning) this.begin();
      to.text += text;
      if (reasoning) to.reasoning = (to.reasoning ?? '') + reasoning;
      if (typeof choice.x_score === 'number') to.score = choice.x_score;
      if (choice.finish_reason) to.finish = choice.finish_reason === 'length' ? 'length' : 'stop';
    }
    // Of several choices, only the sum is told.
    const isSingle = this.others.length === 0 && message.origin!.choice === undefined;
    if (chunk.usage && isSingle) this.count(chunk.usage, chunk.timings);
  }

  /** The first text replaces that of an earlier try. */
  private begin(): void {
    if (this.live.hasBegun) return;
    this.live.hasBegun = true;
    this.live.phase = 'writing';
    this.firstToken = performance.now();
    this.message.text = '';
    delete this.message.reasoning;
  }

  private choice(index: number): Message {
    const first = this.message.origin!.choice ?? 0;
    if (index === first) return this.message;
    // "The same again" is about one choice.
    if (this.message.origin!.choice !== undefined) return {...this.message};
    let other = this.others.find((each) => each.origin!.choice === index);
    if (!other) {
      const origin = {...this.message.origin!, choice: index};
      other = {...this.message, id: newId(), created: this.message.created + index, text: '', origin};
      delete other.reasoning;
      delete other.counts;
      delete this.message.counts;
      this.others.push(other);
    }
    return other;
  }

  private count(usage: NonNullable<Chunk['usage']>, timings: Chunk['timings']): void {
    const answer = usage.completion_tokens ?? 0;
    const seconds = (performance.now() - this.firstToken) / 1000;
    const measured = this.firstToken && answer > 1 && seconds > 0 ? (answer - 1) / seconds : 0;
    this.message.counts = {
      prompt: usage.prompt_tokens ?? 0,
      cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
      answer,
      reasoning: usage.completion_tokens_details?.reasoning_tokens ?? 0,
      tokensPerSecond: timings?.predicted_per_second ?? measured,
    };
  }
}
