// The tokens of an answer, with what else the model could have taken.

import {postForEvents, RequestError} from './api';
import {openDialog} from './dialogs';
import {h} from './dom';
import {bodyOf, readChunk, type TokenEntry} from './generation';
import {count, t} from './texts';
import type {Message} from './types';

const ALTERNATIVES = 8;
/** Tokens that are laid out together. */
const CHUNK = 200;

function percent(logprob: number): string {
  const value = Math.exp(logprob) * 100;
  return value >= 99.95 ? '100%' : value >= 0.1 ? `${value.toFixed(1)}%` : value > 0 ? '< 0.1%' : '0%';
}

/** From 0, unlikely, to 4, likely. */
function levelOf(logprob: number): number {
  const probability = Math.exp(logprob);
  return [0.02, 0.1, 0.35, 0.75].filter((least) => probability >= least).length;
}

/** A token's text with its spaces and line ends in sight. */
function visible(entry: TokenEntry): string {
  if (/^�*$/.test(entry.token) && entry.bytes?.length)
    return entry.bytes.map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  return entry.token.replace(/ /g, '·').replace(/\n/g, '↵').replace(/\t/g, '→');
}

function alternatives(entry: TokenEntry, index: number, of: number): HTMLElement {
  const list = [...(entry.top_logprobs ?? [])];
  if (!list.some((each) => each.token === entry.token && each.logprob === entry.logprob)) list.push(entry);
  list.sort((a, b) => b.logprob - a.logprob);
  const rest = Math.max(0, 1 - list.reduce((sum, each) => sum + Math.exp(each.logprob), 0));
  const row = (name: string, logprob: number, isTaken: boolean) =>
    h(
      'tr',
      {class: isTaken ? 'taken' : ''},
      h('th', {scope: 'row'}, h('code', {dir: 'auto'}, name), isTaken ? h('span', {class: 'badge'}, t.taken) : null),
      h('td', {}, h('meter', {min: 0, max: 1, value: Math.exp(logprob), 'aria-hidden': 'true'})),
      h('td', {class: 'numbers'}, percent(logprob)),
    );
  return h(
    'table',
    {class: 'alternatives'},
    h('caption', {}, t.tokenOf(index + 1, of)),
    h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, t.token), h('td', {}), h('th', {scope: 'col'}, t.probability))),
    h(
      'tbody',
      {},
      ...list.map((each) => row(visible(each), each.logprob, each.token === entry.token && each.logprob === entry.logprob)),
      rest > 0.0005 ? row(t.other, Math.log(rest), false) : null,
    ),
  );
}

/** Computes an answer again, now with probabilities, and shows its tokens as
 * they come. Only here does the page ask for them. */
export function tokenDialog(message: Message, path: readonly Message[]): void {
  const entries: TokenEntry[] = [];
  const text = h('div', {class: 'tokens', role: 'listbox', 'aria-label': t.tokensTitle, dir: 'auto'});
  const detail = h('div', {class: 'detail', 'aria-live': 'polite'}, h('p', {class: 'hint'}, t.tokensHint));
  const state = h('p', {class: 'hint', role: 'status'}, t.waiting);
  const legend = h('div', {class: 'legend', 'aria-hidden': 'true'}, ...[0, 1, 2, 3, 4].map((level) => h('span', {class: `level-${level}`})), t.tokensLegend);
  let chunk: HTMLElement | null = null;
  let chosen: HTMLElement | null = null;

  const choose = (element: HTMLElement) => {
    chosen?.setAttribute('aria-selected', 'false');
    if (chosen) chosen.tabIndex = -1;
    chosen = element;
    element.tabIndex = 0;
    element.setAttribute('aria-selected', 'true');
    const index = Number(element.dataset['index']);
    detail.replaceChildren(alternatives(entries[index]!, index, entries.length));
  };
  const show = (entry: TokenEntry) => {
    const index = entries.push(entry) - 1;
    if (index % CHUNK === 0 || !chunk) text.append((chunk = h('div', {class: 'token-chunk', role: 'presentation'})));
    // Spaces within a text are clear; those alone, and the ends of lines, are not.
    const shown = /^[\s�]*$/.test(entry.token) ? visible(entry) : entry.token.replace(/\n/g, '↵');
    const options = {role: 'option', class: `token level-${levelOf(entry.logprob)}`, tabindex: index === 0 ? 0 : -1, 'aria-selected': 'false', 'data-index': index};
    chunk.append(h('span', options, shown));
    if (entry.token.includes('\n')) chunk.append(h('br'));
  };
  text.addEventListener('click', (event) => {
    const token = (event.target as Element).closest<HTMLElement>('.token');
    if (token) {
      choose(token);
      token.focus();
    }
  });
  text.addEventListener('keydown', (event) => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    const all = text.querySelectorAll<HTMLElement>('.token');
    const next = all[Math.min(all.length - 1, Math.max(0, chosen ? Number(chosen.dataset['index']) + step : 0))];
    if (next) {
      choose(next);
      next.focus();
    }
  });

  const abort = new AbortController();
  const dialog = openDialog(t.tokensTitle, 'box large', h('p', {class: 'hint'}, t.tokensNote), h('div', {class: 'row spread'}, state, legend), h('div', {class: 'token-columns'}, text, detail));
  dialog.addEventListener('close', () => abort.abort());
  const read = async () => {
    const body = bodyOf(path, message.origin!, {logprobs: true, top_logprobs: ALTERNATIVES});
    const wanted = message.origin!.choice ?? 0;
    for await (const data of postForEvents('v1/chat/completions', body, abort.signal)) {
      for (const choice of readChunk(data).chunk.choices ?? []) {
        if ((choice.index ?? 0) !== wanted) continue;
        for (const entry of choice.logprobs?.content ?? []) show(entry);
        if (entries.length > 0) state.textContent = t.tokenCount(count(entries.length));
      }
    }
  };
  read().catch((error: unknown) => {
    if (!abort.signal.aborted) state.textContent = error instanceof RequestError ? error.failure.message : String(error);
  });
}
