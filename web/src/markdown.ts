// Shows markdown that grows. A finished block is parsed and built once; only
// the last one, which may still change, is built again.

import {Lexer, Marked, type Links, type Token, type Tokens} from 'marked';
import markedCjkFriendly from 'marked-cjk-friendly';

import {BlockReader, plainText, type Block} from './blocks';
import {codeView, type CodeView} from './code';
import {h} from './dom';
import {LinkDefinitions, type Shown} from './links';
import {drawMath, mathExtensions} from './math';
import {isHtml, toFragment} from './safe';
import {t} from './texts';

/** What stands for a part of a block that HTML does not carry. */
type Part = (place: Element) => void;
let parts: Part[] = [];

function put(tag: string, part: Part): string {
  parts.push(part);
  return `<${tag} data-part="${parts.length - 1}"></${tag}>`;
}

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

// Chinese and Japanese have no space around emphasis, and punctuation of their own.
const marked = new Marked(markedCjkFriendly(), {
  gfm: true,
  extensions: mathExtensions((formula, isDisplay) =>
    put('span', (place) => drawMath(formula, isDisplay, place as HTMLElement)),
  ),
  renderer: {
    code: ({text, lang}) => put('pre', (place) => place.replaceWith(codeView(text, lang ?? '', true).element)),
    html: ({text}) => (isHtml(text) ? text : escape(text)),
    text(token) {
      // Behind an inline <code> or <kbd>, marked takes text for HTML.
      if ('escaped' in token) token.escaped = false;
      return false;
    },
    checkbox: ({checked}) => (checked ? '☑ ' : '☐ '),
    image({href, text}) {
      const label = escape(text || href);
      if (/^data:/i.test(href)) return `<img src="${escape(href)}" alt="${escape(text)}">`;
      return `<a href="${escape(href)}">🖼 ${label}</a>`;
    },
  },
});

/** Blocks of a text with references to `links`. Definitions of the text itself
 * do not count: the last one may be cut. A block that is nested deeper than
 * marked can follow stays as it is. */
function lex(text: string, links: Links): Token[] {
  try {
    const lexer = new Lexer(marked.defaults);
    lexer.tokens.links = new Proxy(links, {set: () => true});
    return lexer.lex(text);
  } catch {
    return text ? [plainText(text)] : [];
  }
}

function html(tokens: Token[]): string {
  try {
    return marked.parser(tokens);
  } catch {
    return tokens.map((token) => `<p>${escape(token.raw)}</p>`).join('');
  }
}

function build(tokens: Token[]): DocumentFragment {
  parts = [];
  const fragment = toFragment(html(tokens));
  const made = parts;
  for (const place of fragment.querySelectorAll('[data-part]')) {
    const part = made[Number(place.getAttribute('data-part'))];
    place.removeAttribute('data-part');
    part?.(place);
  }
  // Each block has the direction of its own text. An item has that of its list: its mark stands where the list has room.
  for (const block of fragment.querySelectorAll('p, ul, ol, h1, h2, h3, h4, h5, h6, blockquote, table'))
    block.setAttribute('dir', 'auto');
  for (const table of fragment.querySelectorAll('table')) {
    const frame = h('div', {class: 'table', tabindex: 0, role: 'group', 'aria-label': t.table});
    table.replaceWith(frame);
    frame.append(table);
  }
  return fragment;
}

/** Blocks of about so many characters are laid out together, or not at all
 * while they are out of sight. */
const CHUNK = 3000;

export class MarkdownView {
  readonly element = h('div', {class: 'markdown'});
  private readonly definitions = new LinkDefinitions();
  /** The number of definitions that the reader's blocks know. */
  private known = 0;
  private readonly reader = new BlockReader((text) => {
    this.known = this.definitions.count;
    return lex(text, this.definitions.links);
  });
  private readonly tail = h('div', {class: 'chunk tail'});
  private chunk: HTMLElement | null = null;
  private chunkSize = 0;
  private openCode: CodeView | null = null;
  private isFinished = false;

  constructor() {
    this.element.append(this.tail);
  }

  append(text: string): void {
    this.reader.append(text);
  }

  /** Tells that no more text comes. */
  finish(): void {
    this.isFinished = true;
  }

  /** Builds finished blocks until `deadline` (of performance.now). Returns
   * whether all are built. */
  work(deadline: number): boolean {
    for (;;) {
      const block = this.reader.next(this.isFinished);
      if (!block) break;
      this.addBlock(block);
      if (performance.now() > deadline) return false;
    }
    for (let block = this.definitions.next(); block; block = this.definitions.next()) {
      this.rebuild(block);
      if (performance.now() > deadline) return false;
    }
    if (this.isFinished) this.chunk?.classList.remove('open');
    return true;
  }

  /** Shows the block that is not finished. */
  showTail(): void {
    const rest = this.reader.rest();
    if (!Array.isArray(rest)) {
      if (!this.openCode) {
        this.openCode = codeView(rest.text, rest.language, false);
        this.tail.replaceChildren(this.openCode.element);
      } else {
        this.openCode.update(rest.text);
      }
      return;
    }
    this.openCode = null;
    this.tail.replaceChildren(build(rest));
  }

  private addBlock(block: Block): void {
    if (this.openCode || this.tail.hasChildNodes()) {
      this.openCode = null;
      this.tail.replaceChildren();
    }
    if (block.token.type === 'space') return;
    if (!this.chunk || this.chunkSize > CHUNK) {
      this.chunk?.classList.remove('open');
      this.chunk = h('div', {class: 'chunk open'});
      this.chunkSize = 0;
      this.tail.before(this.chunk);
    }
    this.chunkSize += block.raw.length;
    if (block.token.type === 'code') {
      const code = block.token as Tokens.Code;
      this.chunk.append(codeView(code.text, code.lang ?? '', true).element);
      return;
    }
    if (block.raw.includes(']:'))
      void marked.walkTokens([block.token], (token) => {
        if (token.type === 'def') this.definitions.add(token as Tokens.Def);
      });
    const fragment = build([block.token]);
    const nodes = [...fragment.childNodes];
    this.chunk.append(fragment);
    if (nodes.length > 0) this.definitions.watch({raw: block.raw, nodes}, this.known);
  }

  /** Builds a block with the definitions that followed it. */
  private rebuild(block: Shown): void {
    const fragment = build(lex(block.raw, this.definitions.links));
    const nodes = [...fragment.childNodes];
    if (nodes.length === 0) return;
    block.nodes[0]!.before(fragment);
    for (const node of block.nodes) node.remove();
    block.nodes = nodes;
  }
}
