// What a screen reader says while an answer grows: whole sentences.

import {h} from './dom';

const region = h('div', {class: 'unseen', 'aria-live': 'polite', role: 'log', 'aria-relevant': 'additions'});
document.body.append(region);

/** Says a text, after what is being said. */
export function say(text: string): void {
  if (!text.trim()) return;
  region.append(h('p', {}, text.trim()));
  while (region.childElementCount > 8) region.firstElementChild!.remove();
}

/** Says the finished sentences of a text that grows. */
export class Sentences {
  private said = 0;

  /** `isLast`: the rest is a sentence, too. */
  update(text: string, isLast: boolean): void {
    if (text.length < this.said) this.said = 0;
    const rest = text.slice(this.said);
    let end = 0;
    if (isLast) end = rest.length;
    else for (const match of rest.matchAll(/[.!?](?=\s)|[。！？]|\n/g)) end = match.index + match[0].length;
    if (end === 0) return;
    // Marks of markdown say nothing.
    say(rest.slice(0, end).replace(/[`*_#|>]+/g, ' '));
    this.said += end;
  }
}
