// Cuts a markdown text that grows into blocks, each of which is parsed once.

import type {Token, Tokens} from 'marked';

/** A block that no further text changes. */
export interface Block {
  token: Token;
  /** Its source. */
  raw: string;
}

/** The code of a fenced block that has no end yet. */
export interface OpenCode {
  language: string;
  text: string;
}

/** A paragraph of a text without marks. */
export function plainText(text: string): Tokens.Paragraph {
  return {type: 'paragraph', raw: text, text, tokens: [{type: 'text', raw: text, text, escaped: false}]};
}

const FENCE = /^( {0,3})(`{3,}|~{3,})([^\n]*)\n/;
/** A block with more characters is cut where that shows least. Parsing so many
 * takes some milliseconds. */
const LARGEST = 4096;
/** One with more that cannot be cut loses its form. */
const LARGEST_WHOLE = 16384;
const WINDOW = 2048;
/** What begins like a formula and is longer is none. */
const LARGEST_FORMULA = 2048;

export class BlockReader {
  private text = '';
  /** Where the first block begins that is not finished. */
  private at = 0;
  /** Where lines begin that may end the open code. */
  private codeAt = 0;
  /** Finished blocks that follow. */
  private ahead: Token[] = [];
  /** The tokens that are not finished. */
  private last: Token[] = [];

  constructor(private readonly lex: (text: string) => Token[]) {}

  append(text: string): void {
    this.text += text.replace(/\r\n?/g, '\n');
  }

  get isAtEnd(): boolean {
    return this.at >= this.text.length;
  }

  /** The next finished block, or null if the rest may still change. Without
   * more text to come (`isLast`), all blocks are finished. */
  next(isLast: boolean): Block | null {
    const known = this.ahead.shift();
    if (known) return this.take(known);
    for (let size = WINDOW; ; size *= 2) {
      if (this.isAtEnd) return null;
      const code = this.closedCode(isLast);
      if (code !== undefined) return code;
      const tokens = this.lex(this.text.slice(this.at, this.at + size));
      const isWhole = this.at + size >= this.text.length;
      // The last block goes on in the next line, perhaps after empty ones.
      let count = isWhole && isLast ? tokens.length : tokens.findLastIndex((token) => token.type !== 'space');
      if (!isLast) count = Math.min(count, this.openFormula(tokens));
      if (count > 0) {
        this.ahead = tokens.slice(1, count);
        return this.take(tokens[0]!);
      }
      const cut = tokens[0] && tokens[0].raw.length >= LARGEST ? this.cut(tokens[0]) : null;
      if (cut) return cut;
      if (isWhole) {
        this.last = tokens;
        return null;
      }
    }
  }

  /** The index of a formula without an end, which may have empty lines and
   * then looks like several blocks. */
  private openFormula(tokens: Token[]): number {
    const at = tokens.findIndex(
      ({type, raw}) => type === 'paragraph' && (/^\$\$(?![^]*\$\$)/.test(raw) || /^\\\[(?![^]*\\\])/.test(raw)),
    );
    const size = tokens.slice(Math.max(0, at)).reduce((sum, {raw}) => sum + raw.length, 0);
    return at >= 0 && size < LARGEST_FORMULA ? at : tokens.length;
  }

  /** What is not finished after `next` returned null: code without an end, or
   * tokens. */
  rest(): OpenCode | Token[] {
    const fence = this.fence();
    if (fence) return {language: fence.language, text: this.text.slice(this.at + fence.length)};
    return this.isAtEnd ? [] : this.last;
  }

  private take(token: Token): Block {
    this.at += token.raw.length;
    this.codeAt = 0;
    return {token, raw: token.raw};
  }

  private fence(): {mark: string; language: string; length: number} | null {
    const match = FENCE.exec(this.text.slice(this.at, this.at + 256));
    if (!match || (match[2]![0] === '`' && match[3]!.includes('`'))) return null;
    return {mark: match[2]!, language: match[3]!.trim().split(/\s/)[0] ?? '', length: match[0].length};
  }

  /** The code block here, null if it has no end yet, undefined if there is
   * none. The lines of code are looked at once, and never parsed. */
  private closedCode(isLast: boolean): Block | null | undefined {
    const fence = this.fence();
    if (!fence) return undefined;
    const begin = this.at + fence.length;
    let line = Math.max(begin, this.codeAt);
    let end = -1;
    let after = this.text.length;
    while (line < this.text.length) {
      const stop = this.text.indexOf('\n', line);
      if (stop < 0 && !isLast) break;
      const text = this.text.slice(line, stop < 0 ? undefined : stop).trim();
      if (text.startsWith(fence.mark) && text === fence.mark[0]!.repeat(text.length)) {
        end = line;
        after = stop < 0 ? this.text.length : stop + 1;
        break;
      }
      line = stop < 0 ? this.text.length : stop + 1;
    }
    this.codeAt = line;
    if (end < 0) {
      if (!isLast) return null;
      end = this.text.length;
    }
    const token: Tokens.Code = {
      type: 'code',
      raw: this.text.slice(this.at, after),
      lang: fence.language,
      text: this.text.slice(begin, end).replace(/\n$/, ''),
    };
    return this.take(token);
  }

  /** The beginning of a block that is too large to be parsed again and again. */
  private cut(token: Token): Block | null {
    if (token.type === 'list') {
      const list = token as Tokens.List;
      const items = list.items.slice(0, -1);
      const raw = items.map((item) => item.raw).join('');
      if (items.length > 0) return this.take({...list, items, raw});
    }
    const space = Math.max(token.raw.lastIndexOf('\n', LARGEST - 1), token.raw.lastIndexOf('. ', LARGEST - 2) + 1);
    const part = token.raw.slice(0, space > 0 ? space + 1 : LARGEST);
    if (token.type === 'paragraph') {
      const [paragraph] = this.lex(part);
      return paragraph ? this.take(paragraph) : null;
    }
    return token.raw.length >= LARGEST_WHOLE ? this.take(plainText(part)) : null;
  }
}
