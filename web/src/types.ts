// What the page keeps: conversations, and the messages of their trees.

/** A value of a parameter, as JSON has it. */
export type Value = string | number | boolean | null | Value[] | {[name: string]: Value};

/** Values of parameters by their names in requests. A parameter that is absent
 * has the server's default. */
export type Settings = {[name: string]: Value};

/** A file of text in a prompt. */
export interface TextFile {
  name: string;
  text: string;
}

/** How an answer ended. `stopped` is by the reader. */
export type Finish = 'stop' | 'length' | 'stopped' | 'failed';

/** What went wrong with a request. */
export interface Failure {
  kind: 'unreachable' | 'died' | 'busy' | 'key' | 'too-long' | 'refused';
  message: string;
  /** Seconds after which a busy server may be asked again. */
  retryAfter?: number;
  /** Tokens of a prompt that is too long, and of the context. */
  tokens?: number;
  context?: number;
}

/** How an answer was made, which is all that makes it again. */
export interface Origin {
  model: string;
  system: string;
  settings: Settings;
  /** A whole number of 64 bits, as text: a number of JavaScript has 53. */
  seed: string;
  /** The first message of the prompt, if the oldest were left out. */
  start?: string;
  /** Which choice of a request for several. */
  choice?: number;
}

export interface Counts {
  prompt: number;
  cached: number;
  answer: number;
  reasoning: number;
  tokensPerSecond: number;
}

/** A message: a node of a conversation's tree. */
export interface Message {
  id: string;
  conversation: string;
  parent: string | null;
  role: 'user' | 'assistant';
  created: number;
  text: string;
  files?: TextFile[];
  reasoning?: string;
  origin?: Origin;
  counts?: Counts;
  finish?: Finish;
  failure?: Failure;
  /** The score of a beam. */
  score?: number;
  /** Whether "the same again" gave the same text. */
  same?: boolean;
}

export interface Conversation {
  id: string;
  title: string;
  created: number;
  updated: number;
  model: string;
  system: string;
  settings: Settings;
  /** Empty: each answer has a seed of its own. */
  seed: string;
  /** The last message of the branch that is shown. */
  leaf: string | null;
  /** The first message that prompts have, if not the first of all. */
  start?: string;
}

export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
