// Blocks of code, and their colours.

import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import c from 'highlight.js/lib/languages/c';
import cmake from 'highlight.js/lib/languages/cmake';
import cpp from 'highlight.js/lib/languages/cpp';
import csharp from 'highlight.js/lib/languages/csharp';
import css from 'highlight.js/lib/languages/css';
import diff from 'highlight.js/lib/languages/diff';
import dockerfile from 'highlight.js/lib/languages/dockerfile';
import go from 'highlight.js/lib/languages/go';
import ini from 'highlight.js/lib/languages/ini';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import kotlin from 'highlight.js/lib/languages/kotlin';
import llvm from 'highlight.js/lib/languages/llvm';
import lua from 'highlight.js/lib/languages/lua';
import makefile from 'highlight.js/lib/languages/makefile';
import php from 'highlight.js/lib/languages/php';
import python from 'highlight.js/lib/languages/python';
import ruby from 'highlight.js/lib/languages/ruby';
import rust from 'highlight.js/lib/languages/rust';
import sql from 'highlight.js/lib/languages/sql';
import swift from 'highlight.js/lib/languages/swift';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';

import {copyText, h, iconButton} from './dom';
import {t} from './texts';

const LANGUAGES = {
  bash, c, cmake, cpp, csharp, css, diff, dockerfile, go, ini, java, javascript, json, kotlin, llvm, lua, makefile, php,
  python, ruby, rust, sql, swift, typescript, xml, yaml,
}; // prettier-ignore
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** More characters take longer than a frame, and stay plain. */
const MOST_COLOURED = 12000;

interface Scope {
  scope?: string;
  children?: (Scope | string)[];
}

/** Elements from the tree of highlight.js: its HTML is never used. */
function nodesOf(scope: Scope): (Node | string)[] {
  return (scope.children ?? []).map((child) => {
    if (typeof child === 'string') return child;
    const nodes = nodesOf(child);
    if (!child.scope) return h('span', {}, ...nodes);
    return h('span', {class: `code-${child.scope.split('.')[0]!}`}, ...nodes);
  });
}

function colour(code: HTMLElement, text: string, language: string): void {
  if (text.length > MOST_COLOURED || !hljs.getLanguage(language)) return;
  const result = hljs.highlight(text, {language, ignoreIllegals: true});
  const root = (result._emitter as unknown as {rootNode: Scope}).rootNode;
  code.replaceChildren(...nodesOf(root));
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
    h('pre', {tabindex: 0, role: 'region', 'aria-label': language ? `${t.code}: ${language}` : t.code}, code),
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
