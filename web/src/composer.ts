// The field for the next message, with files.

import {h, icon, iconButton} from './dom';
import {draft} from './draft';
import {t} from './texts';
import type {TextFile} from './types';

const LARGEST_FILE = 4 << 20;

export interface ComposerActions {
  send(text: string, files: TextFile[]): void;
  stop(): void;
  editLast(): boolean;
}

/** The text of a file, or null if it is not text. */
async function readText(file: File): Promise<string | null> {
  try {
    const text = new TextDecoder('utf-8', {fatal: true}).decode(await file.arrayBuffer());
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}

export class Composer {
  readonly element: HTMLElement;
  readonly field = h('textarea', {
    id: 'prompt',
    rows: 1,
    dir: 'auto',
    placeholder: t.promptHint,
    'aria-label': t.prompt,
    enterkeyhint: 'send',
  });
  private readonly chips = h('div', {class: 'chips', hidden: true});
  private readonly notice = h('p', {class: 'hint', role: 'status', hidden: true});
  private readonly main = h('button', {type: 'button', class: 'send', id: 'send', 'aria-label': t.send, title: t.send}, icon('send'));
  private readonly choose = h('input', {type: 'file', multiple: true, hidden: true, 'aria-label': t.attach});
  private files: TextFile[] = [];
  private isBusy = false;

  constructor(private readonly actions: ComposerActions) {
    const attach = iconButton('clip', t.attach, () => this.choose.click());
    const box = h(
      'div',
      {class: 'composer-box'},
      this.chips,
      h('div', {class: 'composer-row'}, attach, this.field, this.main),
      this.choose,
    );
    this.element = h('section', {class: 'composer', 'aria-label': t.promptHint}, h('div', {class: 'column'}, this.notice, box));
    this.main.addEventListener('click', () => (this.isBusy ? actions.stop() : this.send()));
    this.field.addEventListener('input', () => {
      draft.text = this.field.value;
      this.resize();
    });
    this.field.addEventListener('keydown', (event) => this.onKey(event));
    this.choose.addEventListener('change', () => {
      void this.add([...(this.choose.files ?? [])]);
      this.choose.value = '';
    });
    this.refresh();
  }

  /** While an answer is written, the button stops it. */
  setBusy(isBusy: boolean): void {
    if (isBusy === this.isBusy) return;
    this.isBusy = isBusy;
    const label = isBusy ? t.stop : t.send;
    this.main.replaceChildren(icon(isBusy ? 'stop' : 'send'));
    this.main.setAttribute('aria-label', label);
    this.main.title = label;
    this.main.classList.toggle('stops', isBusy);
    this.refresh();
  }

  /** Shows what was not sent before a reload. Needs the page's layout. */
  restore(): void {
    this.field.value = draft.text;
    this.files = draft.files;
    this.resize();
  }

  clear(): void {
    this.field.value = draft.text = '';
    this.setFiles([]);
    this.notice.hidden = true;
    this.resize();
  }

  private setFiles(files: TextFile[]): void {
    this.files = draft.files = files;
    this.refresh();
  }

  async add(files: readonly File[]): Promise<void> {
    const problems: string[] = [];
    const texts: TextFile[] = [];
    for (const file of files) {
      if (file.size > LARGEST_FILE) {
        problems.push(t.fileTooLarge(file.name));
        continue;
      }
      const text = await readText(file);
      if (text === null) problems.push(t.notText(file.name));
      else texts.push({name: file.name, text});
    }
    this.notice.textContent = problems.join(' ');
    this.notice.hidden = problems.length === 0;
    this.setFiles([...this.files, ...texts]);
    this.field.focus();
  }

  private send(): void {
    const text = this.field.value.trim();
    if (this.isBusy || (!text && this.files.length === 0)) return;
    const {files} = this;
    this.clear();
    this.actions.send(text, files);
  }

  private onKey(event: KeyboardEvent): void {
    // A word that an input method composes ends with Enter, too.
    if (event.isComposing) return;
    if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      this.send();
    } else if (event.key === 'ArrowUp' && this.field.value === '' && this.actions.editLast()) {
      event.preventDefault();
    }
  }

  private resize(): void {
    this.field.style.height = 'auto';
    this.field.style.height = `${this.field.scrollHeight}px`;
    this.refresh();
  }

  private refresh(): void {
    const hasContent = this.field.value.trim() !== '' || this.files.length > 0;
    this.main.disabled = !this.isBusy && !hasContent;
    this.chips.hidden = this.files.length === 0;
    this.chips.replaceChildren(
      ...this.files.map((file) =>
        h(
          'span',
          {class: 'chip'},
          icon('file'),
          h('span', {dir: 'auto'}, file.name),
          iconButton('close', t.removeFile(file.name), () => {
            this.setFiles(this.files.filter((each) => each !== file));
            this.field.focus();
          }),
        ),
      ),
    );
  }
}
