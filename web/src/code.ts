// Blocks of code, and their colours.

import {copyText, h, iconButton} from './dom';
import type {Scope} from './highlight';
import {slice} from './slices';
import {t} from './texts';

/** More characters take longer than a frame, and stay plain. */
const MOST_COLOURED = 12000;

let highlighter: Promise<typeof import('./highlight')> | null = null;

/** Loads what colours code. */
export function loadHighlighter(): Promise<typeof import('./highlight')> {
  return (highlighter ??= import('./highlight'));
}

function nodesOf(scope: Scope): (Node | string)[] {
  return (scope.children ?? []).map((child) => {
    if (typeof child === 'string') return child;
    const nodes = nodesOf(child);
    if (!child.scope) return h('span', {}, ...nodes);
    return h('span', {class: `code-${child.scope.split('.')[0]!}`}, ...nodes);
  });
}

function colour(code: HTMLElement, text: string, language: string): void {
  if (!language || text.length > MOST_COLOURED) return;
  void loadHighlighter().then(({treeOf}) =>
    slice(() => {
      const tree = treeOf(text, language);
      if (tree) code.replaceChildren(...nodesOf(tree));
      return true;
    }),
  );
}

export interface CodeView {
  element: HTMLElement;
  /** Shows a longer text of a block that is still written. */
  update(text: string): void;
}

/** A block of code. Colours come when it is `closed`. */
export function codeView(text: string, language: string, closed: boolean): CodeView {
  const body = document.createTextNode(text);
  const code = h('code', {}, body);
  const copy = iconButton('copy', t.copyCode, () => copyText(code.textContent ?? '', copy));
  const element = h(
    'figure',
    {class: 'code', dir: 'ltr'},
    h('figcaption', {}, h('span', {}, language || t.text), copy),
    h('pre', {tabindex: 0, role: 'group', 'aria-label': language ? `${t.code}: ${language}` : t.code}, code),
  );
  if (closed) colour(code, text, language.toLowerCase());
  return {
    element,
    update(longer) {
      if (longer.startsWith(body.data)) body.appendData(longer.slice(body.data.length));
      else body.data = longer;
    },
  };
}
