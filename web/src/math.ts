// Formulas: extensions of marked that find them, and KaTeX, which draws them
// and is loaded after the page.

import type {Tokens, TokenizerAndRendererExtension} from 'marked';

/** The extensions. `put` keeps a formula, and returns the HTML that stands for it. */
export function mathExtensions(put: (formula: string, isDisplay: boolean) => string): TokenizerAndRendererExtension[] {
  const token = (type: string, match: RegExpExecArray | null, isDisplay: boolean) => {
    const formula = match?.slice(1).find((part) => part !== undefined);
    return match && formula?.trim() ? {type, raw: match[0], formula: formula.trim(), isDisplay} : undefined;
  };
  const renderer = (found: Tokens.Generic) => put(found['formula'], found['isDisplay']);
  return [
    {
      name: 'mathBlock',
      level: 'block',
      start: (text) => /(?:^|\n)(?:\$\$|\\\[)/.exec(text)?.index,
      tokenizer: (text) => token('mathBlock', /^(?:\$\$([^]+?)\$\$|\\\[([^]+?)\\\])[ \t]*(?:\n+|$)/.exec(text), true),
      renderer: (found) => `<p>${put(found['formula'], true)}</p>`,
    },
    {
      name: 'mathDisplay',
      level: 'inline',
      start: (text) => /\$\$|\\\[/.exec(text)?.index,
      tokenizer: (text) => token('mathDisplay', /^(?:\$\$([^]+?)\$\$|\\\[([^]+?)\\\])/.exec(text), true),
      renderer,
    },
    {
      name: 'mathInline',
      level: 'inline',
      start: (text) => /\$|\\\(/.exec(text)?.index,
      // As in pandoc: "from $5 to $10" is no formula.
      tokenizer: (text) =>
        token('mathInline', /^(?:\$(?![\s$])((?:\\[^]|[^$\\\n])+?)(?<!\s)\$(?!\d)|\\\(([^]+?)\\\))/.exec(text), false),
      renderer,
    },
  ];
}

let katex: typeof import('katex').default | null = null;
let loading: Promise<void> | null = null;

/** Loads KaTeX. */
export function loadMath(): Promise<void> {
  return (loading ??= import('katex').then((module) => void (katex = module.default)));
}

/** Draws a formula without HTML. One that KaTeX does not know stands as text. */
export function drawMath(formula: string, isDisplay: boolean, into: HTMLElement): void {
  into.className = isDisplay ? 'math math-display' : 'math';
  if (!katex) void loadMath().then(() => drawMath(formula, isDisplay, into));
  if (katex && formula.length <= 4096) {
    try {
      katex.render(formula, into, {
        displayMode: isDisplay,
        trust: false,
        strict: 'ignore',
        maxExpand: 200,
        maxSize: 20,
        throwOnError: true,
      });
      return;
    } catch {
      // Falls through: the reader sees what the model wrote.
    }
  }
  into.classList.add('math-source');
  into.textContent = isDisplay ? `$$${formula}$$` : `$${formula}$`;
}
