// A message of the reader: as it is, and as a field.

import {h, icon} from './dom';
import {t} from './texts';
import type {Message, TextFile} from './types';

/** A prompt with more characters is folded. */
const FOLDED = 1500;
/** Characters of a file that are shown. */
const MOST_OF_FILE = 20000;

function fileView(file: TextFile): HTMLElement {
  const name = h('span', {dir: 'auto'}, file.name);
  return h('details', {class: 'file'}, h('summary', {}, icon('file'), name), h('pre', {tabindex: 0}, file.text.slice(0, MOST_OF_FILE)));
}

export function bubble(message: Message): HTMLElement {
  const text = h('div', {class: 'prompt', dir: 'auto'}, message.text);
  const element = h('div', {class: 'bubble'}, ...(message.files ?? []).map(fileView), message.text ? text : null);
  if (message.text.length < FOLDED) return element;
  text.classList.add('folded');
  const toggle = () => {
    const isFolded = text.classList.toggle('folded');
    more.textContent = isFolded ? t.showAll : t.showLess;
    more.setAttribute('aria-expanded', String(!isFolded));
  };
  const more = h('button', {type: 'button', class: 'link', 'aria-expanded': 'false', onclick: toggle}, t.showAll);
  element.append(more);
  return element;
}

/** A field with the text of a message. */
export function editor(message: Message, leave: () => void, edited: (text: string) => void): HTMLElement {
  const field = h('textarea', {class: 'field', dir: 'auto', rows: 3, 'aria-label': t.edit});
  field.value = message.text;
  const send = () => {
    if (field.value.trim() || message.files?.length) edited(field.value);
  };
  field.addEventListener('keydown', (event) => {
    if (event.isComposing) return;
    if (event.key === 'Escape') {
      event.stopPropagation();
      leave();
    } else if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      send();
    }
  });
  return h(
    'div',
    {class: 'editor'},
    field,
    h('p', {class: 'hint'}, t.editNote),
    h(
      'div',
      {class: 'row end'},
      h('button', {type: 'button', class: 'button', onclick: leave}, t.cancel),
      h('button', {type: 'button', class: 'button primary', onclick: send}, t.sendEdit),
    ),
  );
}
