// The words of the page, in the reader's language.

import {zh} from './chinese';

const en = {
  language: 'en',
  newChat: 'New conversation',
  untitled: 'New conversation',
  search: 'Search conversations',
  noMatch: 'No conversation has this text.',
  noConversations: 'Conversations stay in this browser. None is here yet.',
  conversations: 'Conversations',
  today: 'Today',
  yesterday: 'Yesterday',
  older: 'Older',
  settings: 'Settings',
  about: 'About this page',
  theme: 'Theme',
  themeAuto: 'As the system',
  themeLight: 'Light',
  themeDark: 'Dark',
  close: 'Close',
  cancel: 'Cancel',
  menu: 'Show or hide conversations',
  model: 'Model',
  prompt: 'Message',
  promptHint: 'Write a message',
  send: 'Send',
  stop: 'Stop',
  attach: 'Add files of text',
  dropHere: 'Drop files of text here',
  notText: (name: string) => `${name} is not a file of text.`,
  fileTooLarge: (name: string) => `${name} is larger than 4 MB.`,
  removeFile: (name: string) => `Remove ${name}`,
  welcome: (model: string) => `Talk with ${model}`,
  welcomeNote: 'It runs on this server. Nothing is loaded from, or sent to, anywhere else.',
  welcomeFacts: (context: string) => `It reads up to ${context} tokens.`,
  welcomeSeed: 'Each answer has a seed. The same message, settings and seed give the same answer, bit for bit.',
  you: 'You',
  assistant: 'Answer',
  text: 'text',
  table: 'Table',
  code: 'Code',
  copy: 'Copy',
  copyCode: 'Copy code',
  edit: 'Edit',
  editNote: 'An edited message begins a new branch. The old one stays.',
  sendEdit: 'Send as a new branch',
  regenerate: 'Another answer, with a new seed',
  same: 'The same again, with the same seed',
  sameShort: 'Same again',
  sameYes: 'The same text, bit for bit',
  sameNo: 'Not the same text',
  sameNoHint: 'The model, the program or the machine differs from that of the first answer.',
  tokens: 'Tokens and their alternatives',
  previous: 'Previous branch',
  next: 'Next branch',
  branch: (index: number, count: number) => `Branch ${index} of ${count}`,
  reasoning: 'Reasoning',
  reasoningRuns: 'Reasoning…',
  showAll: 'Show all',
  showLess: 'Show less',
  waiting: 'Waiting for the server',
  loadingModel: (model: string, part: string) => `The server loads ${model}. ${part}`.trimEnd(),
  modelState: (model: string, part: string) => `${model} (loading ${part}`.trimEnd() + ')',
  modelUnloaded: 'The server loads it with your first message.',
  searching: 'Searching with beams: the answer comes at the end',
  queued: (running: string, waiting: string) => `The server is busy: ${running} requests run, ${waiting} wait.`,
  reading: (done: string, total: string) => `Reading the prompt: ${done} of ${total} tokens`,
  tokensPerSecond: (count: string) => `${count} tokens/s`,
  tokenCount: (count: string) => (count === '1' ? '1 token' : `${count} tokens`),
  score: (score: string) => `score ${score}`,
  seed: 'Seed',
  seedIs: (seed: string) => `seed ${seed}`,
  seedHint: 'Empty: each answer draws its own.',
  useSeed: 'Use this seed for the next answers',
  stopped: 'You stopped this answer.',
  cutOff: 'The answer reached its largest number of tokens.',
  interrupted: 'This answer was interrupted.',
  retry: 'Try again',
  retryIn: (seconds: number) => `Trying again in ${seconds} s`,
  unreachable: 'The server does not answer. Is qwen-run serve running?',
  died: 'The server stopped in the middle of the answer. What arrived is kept.',
  busy: 'The server is busy and its queue is full.',
  keyNeeded: 'The server wants an API key.',
  keyWrong: 'The server does not know this key.',
  tooLong: (tokens: string, context: string) => `The prompt has ${tokens} tokens, and the model reads ${context}.`,
  tooLongBytes: 'The prompt is longer than the model reads.',
  cutTurns: (turns: number) => (turns === 1 ? 'Leave out the oldest turn' : `Leave out the oldest ${turns} turns`),
  cutNote: (tokens: string) => `About ${tokens} tokens must go.`,
  cutLast: (percent: number) => `Shorten the last message by about ${percent}%.`,
  cutFile: (name: string) => `${name} is the longest part of it.`,
  cutSystem: 'The system prompt is the longest part.',
  cutHere: 'The model does not read what stands above.',
  readAll: 'Read all again',
  refused: 'The server refused the request.',
  key: 'API key',
  keyNote: 'The key stays in this tab and is sent to this server only.',
  keyRemember: 'Remember it in this browser',
  keyForget: 'Forget the key',
  keyForgotten: 'The key is forgotten.',
  keySave: 'Use the key',
  system: 'System prompt',
  systemHint: 'What the model should know or be',
  presets: 'Presets',
  sampling: 'Sampling',
  answer: 'Answer',
  beams: 'Beams',
  find: 'Find a setting',
  noSetting: 'No setting has this text.',
  standard: 'default',
  standardHint: 'Empty fields have the default of the server and the model.',
  resetAll: 'Reset all',
  changed: (count: number) => (count === 1 ? '1 setting changed' : `${count} settings changed`),
  resetOne: (name: string) => `Reset ${name}`,
  range: (least: string, most: string) => `${least} to ${most}`,
  atLeast: (least: string) => `at least ${least}`,
  notNumber: 'This is not a number.',
  notInteger: 'This is not a whole number.',
  notJson: 'This is not JSON.',
  outOfRange: (range: string) => `The value must be ${range}.`,
  onePerLine: 'one per line',
  yes: 'on',
  no: 'off',
  thinking: 'Reasoning before the answer',
  noSchema: 'The server did not tell its settings.',
  exportOne: 'Export this conversation',
  importFile: 'Import a conversation',
  importFailed: (name: string, why: string) => `${name} is not a conversation: ${why}.`,
  imported: (title: string) => `Imported "${title}".`,
  importedWithout: (names: string) => `Left out, because the server has no such setting: ${names}.`,
  rename: 'Rename',
  remove: 'Delete',
  removeAsk: (title: string) => `Delete "${title}"?`,
  removeNote: 'It cannot be brought back.',
  more: 'More for this conversation',
  notKept: 'This browser keeps no conversations: they vanish with the tab.',
  notSaved: 'The browser keeps no more: export or delete conversations.',
  toEnd: 'To the end',
  licenses: 'Licenses of the libraries in this page',
  shortcuts: 'Keys',
  shortcutList: [
    ['Enter', 'send'],
    ['Shift+Enter', 'new line'],
    ['Esc', 'stop the answer'],
    ['↑', 'edit the last message, in an empty field'],
    ['Ctrl+K', 'search'],
    ['Ctrl+Shift+O', 'new conversation'],
    ['Ctrl+,', 'settings'],
  ],
  tokensTitle: 'Tokens',
  tokensNote:
    'The same answer is computed once more, by its seed, and the server tells how likely each token and its alternatives were.',
  tokensHint: 'Choose a token. The arrow keys go on.',
  tokensLegend: 'unlikely to likely',
  probability: 'Probability',
  token: 'Token',
  tokenOf: (index: number, count: number) => `Token ${index} of ${count}`,
  other: 'all others',
  taken: 'taken',
  working: 'The answer is being written.',
  ready: 'The answer is complete.',
};

export type Texts = typeof en;

function choose(): Texts {
  for (const language of navigator.languages) {
    if (/^zh\b/i.test(language)) return zh;
    if (/^en\b/i.test(language)) return en;
  }
  return en;
}

/** The texts of the reader's first language of these. */
export const t = choose();
document.documentElement.lang = t.language;

/** Made when a number is shown: they take some milliseconds. */
let whole: Intl.NumberFormat | undefined;
let tenth: Intl.NumberFormat | undefined;

/** A count, with separators of thousands. */
export function count(value: number): string {
  whole ??= new Intl.NumberFormat(t.language, {maximumFractionDigits: 0});
  return whole.format(value);
}

/** A part of a whole, from 0 to 1; empty if it is not known. */
export function percent(part: number | undefined): string {
  return part === undefined ? '' : new Intl.NumberFormat(t.language, {style: 'percent', maximumFractionDigits: 0}).format(part);
}

/** A rate: with a digit after the point below 100. */
export function rate(value: number): string {
  tenth ??= new Intl.NumberFormat(t.language, {minimumFractionDigits: 1, maximumFractionDigits: 1});
  return value < 100 ? tenth.format(value) : count(value);
}
