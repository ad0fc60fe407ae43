// Dialogs. A modal <dialog> keeps the focus inside, closes by Escape, and gives
// the focus back.

import {key} from './api';
import {h, icon, iconButton, type Child} from './dom';
import {t} from './texts';
import {theme, type Theme} from './theme';

/** Opens a dialog. `kind` is a class: a drawer at the side, or a box. */
export function openDialog(title: string, kind: string, ...children: Child[]): HTMLDialogElement {
  const before = document.activeElement;
  const close = iconButton('close', t.close, () => dialog.close());
  const dialog = h(
    'dialog',
    {class: kind, 'aria-label': title},
    h('header', {}, h('h2', {}, title), close),
    h('div', {class: 'dialog-body'}, ...children),
  );
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener('close', () => {
    dialog.remove();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
    else document.getElementById('prompt')?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks before something that cannot be undone. */
export function confirmDialog(title: string, note: string, verb: string): Promise<boolean> {
  return new Promise((resolve) => {
    let isSure = false;
    const yes = h('button', {type: 'button', class: 'button danger'}, verb);
    const no = h('button', {type: 'button', class: 'button', autofocus: true}, t.cancel);
    const dialog = openDialog(title, 'box', h('p', {}, note), h('div', {class: 'row end'}, no, yes));
    no.addEventListener('click', () => dialog.close());
    yes.addEventListener('click', () => {
      isSure = true;
      dialog.close();
    });
    dialog.addEventListener('close', () => resolve(isSure));
  });
}

/** The part of a dialog with the key of the server. */
export function keyFields(saved: () => void): HTMLElement {
  const field = h('input', {type: 'password', class: 'field', autocomplete: 'off', spellcheck: 'false', 'aria-label': t.key});
  const remember = h('input', {type: 'checkbox'});
  const told = h('p', {class: 'hint', role: 'status'}, t.keyNote);
  field.value = key.get();
  remember.checked = key.isRemembered;
  const form = h(
    'div',
    {class: 'stack'},
    field,
    h('label', {class: 'check'}, remember, t.keyRemember),
    told,
    h(
      'div',
      {class: 'row end'},
      h(
        'button',
        {
          type: 'button',
          class: 'button',
          onclick: () => {
            key.forget();
            field.value = '';
            remember.checked = false;
            told.textContent = t.keyForgotten;
          },
        },
        t.keyForget,
      ),
      h('button', {type: 'button', class: 'button primary', onclick: save}, t.keySave),
    ),
  );
  function save(): void {
    if (!field.value.trim()) return;
    key.set(field.value.trim(), remember.checked);
    saved();
  }
  field.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') save();
  });
  return form;
}

export function keyDialog(saved: () => void): void {
  const dialog = openDialog(
    t.key,
    'box',
    keyFields(() => {
      dialog.close();
      saved();
    }),
  );
  dialog.querySelector('input')?.focus();
}

export function aboutDialog(): void {
  const choice = h('select', {class: 'field', 'aria-label': t.theme});
  const names: [Theme, string][] = [['auto', t.themeAuto], ['light', t.themeLight], ['dark', t.themeDark]]; // prettier-ignore
  for (const [value, name] of names) choice.append(h('option', {value, selected: theme.get() === value}, name));
  choice.addEventListener('change', () => theme.set(choice.value as Theme));
  const keys = h('dl', {class: 'keys'});
  for (const [name, does] of t.shortcutList) keys.append(h('dt', {}, h('kbd', {}, name!)), h('dd', {}, does!));
  openDialog(
    t.about,
    'box',
    h('p', {}, t.welcomeNote, ' ', t.welcomeSeed),
    h('h3', {}, t.theme),
    choice,
    h('h3', {}, t.shortcuts),
    keys,
    h('p', {}, h('a', {href: 'licenses.txt', target: '_blank', rel: 'noopener noreferrer'}, icon('file'), t.licenses)),
  );
}
