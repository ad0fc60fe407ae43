// Colours of code. This file is loaded after the page.

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


const LANGUAGES = {
  bash, c, cmake, cpp, csharp, css, diff, dockerfile, go, ini, java, javascript, json, kotlin, llvm, lua, makefile, php,
  python, ruby, rust, sql, swift, typescript, xml, yaml,
}; // prettier-ignore
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);


/** A part of a text with its role, such as "keyword". */
export interface Scope {
  scope?: string;
  children?: (Scope | string)[];
}

/** The tree of highlight.js, whose HTML is never used. Null for a language
 * that is not known. */
export function treeOf(text: string, language: string): Scope | null {
  if (!hljs.getLanguage(language)) return null;
  const result = hljs.highlight(text, {language, ignoreIllegals: true});
  return (result._emitter as unknown as {rootNode: Scope}).rootNode;
}
