// What went wrong with an answer, and what the reader can do.

import {h, icon} from './dom';
import {promptText} from './generation';
import {count, t} from './texts';
import type {Failure, Message, TextFile} from './types';

export interface FailureActions {
  retry(): void;
  askKey(): void;
  /** Begins prompts with a later message, and tries again. */
  startAt(message: string): void;
}

/** How a prompt that is too long becomes short enough. */
export interface Cut {
  /** Tokens that must go. */
  tokens: number;
  /** The oldest turns that hold them, and the message that follows. */
  turns: number;
  start: string;
  /** Without such turns: what part of the last message must go. */
  percent: number;
  /** Its longest file, if that is most of it. */
  file: string;
  isSystem: boolean;
}

function longestFile(message: Message | undefined): TextFile | undefined {
  return [...(message?.files ?? [])].sort((a, b) => b.text.length - a.text.length)[0];
}

/** Where to cut: tokens are shared among messages by their lengths, which is
 * near enough for a proposal. Room stays for an answer. */
export function cutOf(failure: Failure, path: readonly Message[], system: string): Cut | null {
  if (!failure.tokens || !failure.context) return null;
  const sizes = path.map((message) => promptText(message).length);
  const all = sizes.reduce((sum, size) => sum + size, system.length) || 1;
  const perCharacter = failure.tokens / all;
  const room = Math.min(512, Math.ceil(failure.context / 4));
  const need = failure.tokens - failure.context + room;
  const cut: Cut = {tokens: need, turns: 0, start: '', percent: 0, file: '', isSystem: false};
  let gone = 0;
  for (let i = 0; i < path.length - 1; ++i) {
    gone += sizes[i]! * perCharacter;
    if (path[i + 1]!.role !== 'user') continue;
    ++cut.turns;
    cut.start = path[i + 1]!.id;
    if (gone >= need) return cut;
  }
  const last = path[path.length - 1]!;
  const size = sizes[sizes.length - 1]!;
  cut.turns = 0;
  cut.isSystem = system.length > size;
  cut.percent = Math.min(99, Math.max(1, Math.ceil((100 * need) / Math.max(1, size * perCharacter))));
  const longest = longestFile(last);
  if (longest && longest.text.length > size / 2) cut.file = longest.name;
  return cut;
}

function button(label: string, onclick: () => void, kind = ''): HTMLButtonElement {
  return h('button', {type: 'button', class: `button ${kind}`, onclick}, label);
}

/** The words and buttons for a failure. `path` are the messages of the prompt. */
export function failureView(
  failure: Failure,
  path: readonly Message[],
  system: string,
  actions: FailureActions,
): HTMLElement {
  const lines: string[] = [];
  const buttons: HTMLElement[] = [];
  const retry = () => button(t.retry, actions.retry);
  if (failure.kind === 'key') {
    lines.push(failure.message);
    buttons.push(button(t.key, actions.askKey, 'primary'), retry());
  } else if (failure.kind === 'busy') {
    lines.push(t.busy, failure.message);
    buttons.push(retry());
  } else if (failure.kind === 'too-long') {
    const cut = cutOf(failure, path, system);
    lines.push(cut ? t.tooLong(count(failure.tokens!), count(failure.context!)) : `${t.tooLongBytes} (${failure.message})`);
    const longest = longestFile(path[path.length - 1]);
    if (cut) lines.push(t.cutNote(count(cut.tokens)));
    else if (longest) lines.push(t.cutFile(longest.name));
    if (cut?.turns) {
      buttons.push(button(t.cutTurns(cut.turns), () => actions.startAt(cut.start), 'primary'));
    } else if (cut) {
      lines.push(cut.isSystem ? t.cutSystem : t.cutLast(cut.percent));
      if (cut.file) lines.push(t.cutFile(cut.file));
    }
    buttons.push(retry());
  } else {
    if (failure.kind === 'refused') lines.push(t.refused);
    lines.push(failure.message);
    buttons.push(retry());
  }
  return h(
    'div',
    {class: 'failure', role: 'alert'},
    icon('info'),
    h('div', {}, ...lines.filter((line, i) => line && lines.indexOf(line) === i).map((line) => h('p', {}, line)), h('div', {class: 'row'}, ...buttons)),
  );
}
