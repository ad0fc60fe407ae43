// The settings of a conversation: a field for each parameter that the server
// tells, with its line of help.

import {openDialog, keyFields} from './dialogs';
import {h, iconButton} from './dom';
import type {Field, Preset, Schema} from './schema';
import {t} from './texts';
import type {Conversation, Settings, Value} from './types';

/** The range of a field in words, or nothing if it has none that matters. */
function rangeOf(field: Field): string {
  const {least, most} = field;
  const isLarge = most === undefined || most >= 2 ** 31 - 1;
  if (least === undefined) return '';
  return isLarge ? t.atLeast(String(least)) : t.range(String(least), String(most));
}

/** The value that a text stands for. Throws Error with words for the reader. */
export function valueOf(field: Field, text: string): Value | undefined {
  if (text.trim() === '') return undefined;
  switch (field.kind) {
    case 'number':
    case 'integer': {
      const value = Number(text.trim().replace(',', '.'));
      if (!Number.isFinite(value)) throw new Error(t.notNumber);
      if (field.kind === 'integer' && !Number.isInteger(value)) throw new Error(t.notInteger);
      if (value < (field.least ?? -Infinity) || value > (field.most ?? Infinity)) throw new Error(t.outOfRange(rangeOf(field)));
      return value;
    }
    case 'boolean':
    case 'choice':
      return JSON.parse(text) as Value;
    case 'lines':
      return text.split('\n').filter((line) => line !== '');
    case 'json':
      try {
        return JSON.parse(text) as Value;
      } catch {
        throw new Error(t.notJson);
      }
    case 'text':
      return text;
  }
}

function textOf(field: Field, value: Value | undefined): string {
  if (value === undefined || value === null) return '';
  if (field.kind === 'lines') return Array.isArray(value) ? value.join('\n') : String(value);
  if (field.kind === 'text') return String(value);
  return JSON.stringify(value);
}

type Control = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;

function controlOf(field: Field): Control {
  const standard = field.standard === undefined ? t.standard : textOf(field, field.standard);
  if (field.kind === 'boolean' || field.kind === 'choice') {
    const select = h('select', {class: 'field'}, h('option', {value: ''}, standard));
    const values: Value[] = field.kind === 'boolean' ? [true, false] : field.choices!;
    for (const value of values) {
      const words = value === true ? t.yes : value === false ? t.no : String(value);
      select.append(h('option', {value: JSON.stringify(value)}, words));
    }
    return select;
  }
  if (field.kind === 'lines' || field.kind === 'json')
    return h('textarea', {class: 'field', rows: field.kind === 'lines' ? 2 : 1, dir: 'auto', spellcheck: 'false', placeholder: field.kind === 'lines' ? t.onePerLine : 'JSON'});
  const mode = field.kind === 'text' ? 'text' : field.kind === 'integer' && (field.least ?? -1) >= 0 ? 'numeric' : 'decimal';
  return h('input', {class: 'field', type: 'text', inputmode: mode, autocomplete: 'off', spellcheck: 'false', placeholder: standard});
}

/** A field of the settings on the page. */
class Row {
  readonly element: HTMLElement;
  private readonly control: Control;
  private readonly problem: HTMLElement;
  private readonly reset: HTMLButtonElement;

  constructor(
    readonly field: Field,
    private readonly settings: Settings,
    private readonly changed: () => void,
  ) {
    const id = `set-${field.name}`;
    this.control = controlOf(field);
    this.control.id = id;
    this.control.setAttribute('aria-describedby', `${id}-help ${id}-problem`);
    this.problem = h('p', {class: 'problem', id: `${id}-problem`, role: 'alert', hidden: true});
    this.reset = iconButton('close', t.resetOne(field.name), () => {
      this.control.value = '';
      this.read();
      this.control.focus();
    });
    const range = rangeOf(field);
    const isWide = field.kind === 'lines' || field.kind === 'json';
    this.element = h(
      'div',
      {class: isWide ? 'setting large' : 'setting'},
      h('label', {for: id}, field.name),
      h('div', {class: 'control'}, this.control, this.reset),
      h('p', {class: 'hint', id: `${id}-help`}, field.help, range && h('span', {class: 'range numbers'}, ` (${range})`)),
      this.problem,
    );
    this.control.addEventListener('input', () => this.read());
    this.write();
  }

  /** Shows the value of the settings. */
  write(): void {
    this.control.value = textOf(this.field, this.settings[this.field.name]);
    this.tell('');
  }

  private read(): void {
    try {
      const value = valueOf(this.field, this.control.value);
      if (value === undefined) delete this.settings[this.field.name];
      else this.settings[this.field.name] = value;
      this.tell('');
      this.changed();
    } catch (error) {
      this.tell((error as Error).message);
    }
  }

  private tell(problem: string): void {
    this.problem.textContent = problem;
    this.problem.hidden = problem === '';
    this.control.setAttribute('aria-invalid', String(problem !== ''));
    const isSet = this.control.value !== '';
    this.reset.hidden = !isSet;
    this.element.classList.toggle('changed', isSet);
  }
}

const titles: {[group: string]: string} = {sampling: t.sampling, answer: t.answer, beams: t.beams};

function thinkingRow(settings: Settings, changed: () => void): HTMLElement {
  const variables = () => (settings['chat_template_kwargs'] ?? {}) as {[name: string]: Value};
  const select = h('select', {class: 'field', id: 'set-thinking'}, h('option', {value: ''}, t.standard), h('option', {value: 'true'}, t.yes), h('option', {value: 'false'}, t.no));
  const now = variables()['enable_thinking'];
  select.value = now === undefined ? '' : String(now);
  select.addEventListener('change', () => {
    const {enable_thinking: _, ...others} = variables();
    const next = select.value ? {...others, enable_thinking: select.value === 'true'} : others;
    if (Object.keys(next).length > 0) settings['chat_template_kwargs'] = next;
    else delete settings['chat_template_kwargs'];
    changed();
  });
  return h('div', {class: 'setting'}, h('label', {for: 'set-thinking', class: 'plain'}, t.thinking), h('div', {class: 'control'}, select));
}

function presetButton(preset: Preset, onclick: () => void): HTMLButtonElement {
  const words = [h('strong', {}, preset.name), h('span', {}, preset.description)];
  return h('button', {type: 'button', class: 'preset', 'aria-pressed': 'false', onclick}, ...words);
}

export function settingsDialog(conversation: Conversation, schema: Schema | null, changed: () => void): HTMLDialogElement {
  const {settings} = conversation;
  const system = h('textarea', {class: 'field', id: 'set-system', rows: 4, dir: 'auto', placeholder: t.systemHint});
  system.value = conversation.system;
  system.addEventListener('input', () => {
    conversation.system = system.value;
    changed();
  });
  const seed = h('input', {class: 'field', id: 'set-seed', inputmode: 'numeric', autocomplete: 'off', placeholder: t.standard, 'aria-describedby': 'set-seed-help'});
  seed.value = conversation.seed;
  const seedHelp = h('p', {class: 'hint', id: 'set-seed-help'}, t.seedHint);
  seed.addEventListener('input', () => {
    const text = seed.value.trim();
    const isValid = /^\d{0,20}$/.test(text) && (text === '' || BigInt(text) < 2n ** 64n);
    seed.setAttribute('aria-invalid', String(!isValid));
    seedHelp.textContent = isValid ? t.seedHint : t.notInteger;
    if (!isValid) return;
    conversation.seed = text;
    changed();
  });

  const rows = (schema?.fields ?? []).map((field) => new Row(field, settings, update));
  const total = h('span', {class: 'hint', role: 'status'});
  const reset = h('button', {type: 'button', class: 'button', onclick: () => set(Object.keys(settings), {})}, t.resetAll);
  /** Gives the settings of some names other values, or none. */
  function set(names: readonly string[], values: Settings): void {
    for (const name of names) delete settings[name];
    Object.assign(settings, structuredClone(values));
    for (const row of rows) row.write();
    update();
  }
  // A preset is about the sampler: what else is set stays.
  const samplers = rows.filter((row) => row.field.group === 'sampling').map((row) => row.field.name);
  const presets = (schema?.presets ?? []).map((preset) => ({
    settings: preset.settings,
    button: presetButton(preset, () => set(samplers, preset.settings)),
  }));
  const isChosen = (preset: Settings) => samplers.every((name) => settings[name] === preset[name]);
  function update(): void {
    const {length} = Object.keys(settings);
    total.textContent = length > 0 ? t.changed(length) : t.standardHint;
    reset.hidden = length === 0;
    for (const preset of presets) preset.button.setAttribute('aria-pressed', String(isChosen(preset.settings)));
    changed();
  }

  const find = h('input', {type: 'search', class: 'field', placeholder: t.find, 'aria-label': t.find});
  const none = h('p', {class: 'hint', hidden: true}, t.noSetting);
  const groups = [...new Set(rows.map((row) => row.field.group))].map((group) => {
    const own = rows.filter((row) => row.field.group === group);
    const title = titles[group] ?? group.replace(/^./, (letter) => letter.toUpperCase());
    return {own, element: h('section', {}, h('h3', {}, title), ...own.map((row) => row.element))};
  });
  find.addEventListener('input', () => {
    const wanted = find.value.trim().toLowerCase();
    let count = 0;
    for (const {own, element} of groups) {
      let shown = 0;
      for (const {field, element: row} of own) {
        row.hidden = !`${field.name} ${field.help}`.toLowerCase().includes(wanted);
        if (!row.hidden) ++shown;
      }
      element.hidden = shown === 0;
      count += shown;
    }
    none.hidden = count > 0;
  });

  const keyPart = h('section', {}, h('h3', {}, t.key), keyFields(() => dialog.close()));
  const dialog = openDialog(
    t.settings,
    'drawer',
    h(
      'section',
      {},
      h('h3', {}, h('label', {for: 'set-system'}, t.system)),
      system,
    ),
    h(
      'section',
      {},
      h('div', {class: 'setting'}, h('label', {for: 'set-seed', class: 'plain'}, t.seed), h('div', {class: 'control'}, seed), seedHelp),
      schema?.canThink ? thinkingRow(settings, update) : null,
    ),
    presets.length > 0
      ? h('section', {}, h('h3', {}, t.presets), h('div', {class: 'presets'}, ...presets.map((preset) => preset.button)))
      : null,
    schema ? h('div', {class: 'find'}, find, h('div', {class: 'row spread'}, total, reset)) : h('p', {class: 'hint'}, t.noSchema),
    none,
    ...groups.map((group) => group.element),
    keyPart,
  );
  update();
  return dialog;
}
