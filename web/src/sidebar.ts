// The list of conversations, with search.

import {h, icon, iconButton} from './dom';
import {t} from './texts';
import type {Conversation} from './types';

export interface SidebarActions {
  create(): void;
  open(id: string): void;
  rename(conversation: Conversation, title: string): void;
  remove(conversation: Conversation): void;
  export(conversation: Conversation): void;
  import(files: File[]): void;
  about(): void;
  search(text: string, signal: AbortSignal): Promise<Set<string>>;
}

export class Sidebar {
  readonly element: HTMLElement;
  private readonly list = h('nav', {class: 'conversations', 'aria-label': t.conversations});
  private readonly query = h('input', {type: 'search', class: 'field', id: 'search', placeholder: t.search, 'aria-label': t.search});
  private conversations: readonly Conversation[] = [];
  private current: string | null = null;
  private active: ReadonlySet<string> = new Set();
  private found: Set<string> | null = null;
  private searching = new AbortController();

  constructor(private readonly actions: SidebarActions) {
    const file = h('input', {type: 'file', accept: '.json,application/json', multiple: true, hidden: true, 'aria-label': t.importFile});
    file.addEventListener('change', () => {
      actions.import([...(file.files ?? [])]);
      file.value = '';
    });
    this.query.addEventListener('input', () => void this.search());
    const wide = (name: Parameters<typeof icon>[0], label: string, onclick: () => void, kind = '') =>
      h('button', {type: 'button', class: `wide ${kind}`, onclick}, icon(name), label);
    this.element = h(
      'aside',
      {class: 'sidebar', id: 'sidebar', 'aria-label': t.conversations},
      h('div', {class: 'sidebar-top'}, wide('add', t.newChat, actions.create, 'new'), h('div', {class: 'search'}, icon('search'), this.query)),
      this.list,
      h('div', {class: 'sidebar-end'}, wide('open', t.importFile, () => file.click()), wide('info', t.about, actions.about), file),
    );
  }

  /** `active`: the conversations in which an answer is written. */
  show(conversations: readonly Conversation[], current: string | null, active: ReadonlySet<string>): void {
    this.conversations = conversations;
    this.current = current;
    this.active = active;
    this.draw();
  }

  focusSearch(): void {
    this.query.focus();
    this.query.select();
  }

  private async search(): Promise<void> {
    this.searching.abort();
    this.searching = new AbortController();
    const {signal} = this.searching;
    const text = this.query.value.trim();
    if (!text) {
      this.found = null;
      return this.draw();
    }
    const found = await this.actions.search(text, signal);
    if (signal.aborted) return;
    const wanted = text.toLocaleLowerCase();
    for (const each of this.conversations) if (each.title.toLocaleLowerCase().includes(wanted)) found.add(each.id);
    this.found = found;
    this.draw();
  }

  private draw(): void {
    const shown = this.conversations.filter((each) => !this.found || this.found.has(each.id));
    if (shown.length === 0) {
      this.list.replaceChildren(h('p', {class: 'hint'}, this.found ? t.noMatch : t.noConversations));
      return;
    }
    const days = [t.today, t.yesterday, t.older];
    const midnight = new Date().setHours(0, 0, 0, 0);
    const dayOf = (time: number) => (time >= midnight ? 0 : time >= midnight - 86400000 ? 1 : 2);
    const nodes: HTMLElement[] = [];
    let day = -1;
    for (const each of shown) {
      if (dayOf(each.updated) !== day) {
        day = dayOf(each.updated);
        nodes.push(h('h2', {}, days[day]!));
      }
      nodes.push(this.row(each));
    }
    this.list.replaceChildren(...nodes);
  }

  private row(conversation: Conversation): HTMLElement {
    const isCurrent = conversation.id === this.current;
    const title = h(
      'button',
      {
        type: 'button',
        class: 'title',
        dir: 'auto',
        'aria-current': isCurrent ? 'page' : null,
        onclick: () => this.actions.open(conversation.id),
      },
      conversation.title || t.untitled,
    );
    const more = iconButton('more', `${t.more}: ${conversation.title}`, () => this.openMenu(row, conversation), {'aria-expanded': 'false'});
    const mark = this.active.has(conversation.id) ? h('span', {class: 'pulse', role: 'img', title: t.working, 'aria-label': t.working}) : null;
    const row = h('div', {class: isCurrent ? 'conversation current' : 'conversation'}, title, mark, more);
    return row;
  }

  private openMenu(row: HTMLElement, conversation: Conversation): void {
    const more = row.querySelector<HTMLButtonElement>('.icon-button')!;
    const close = () => {
      // An element that has the focus must not be removed: it would lose the focus first, and be removed twice.
      more.focus();
      row.querySelector('.menu')?.remove();
      more.setAttribute('aria-expanded', 'false');
    };
    if (row.querySelector('.menu')) return close();
    const item = (name: Parameters<typeof icon>[0], label: string, onclick: () => void) =>
      h('button', {type: 'button', class: 'wide', onclick}, icon(name), label);
    const menu = h(
      'div',
      {class: 'menu'},
      item('edit', t.rename, () => this.rename(row, conversation)),
      item('save', t.exportOne, () => {
        close();
        this.actions.export(conversation);
      }),
      item('remove', t.remove, () => {
        close();
        this.actions.remove(conversation);
      }),
    );
    menu.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      close();
    });
    menu.addEventListener('focusout', (event) => {
      if (event.relatedTarget instanceof Node && row.contains(event.relatedTarget)) return;
      menu.remove();
      more.setAttribute('aria-expanded', 'false');
    });
    more.setAttribute('aria-expanded', 'true');
    row.append(menu);
    menu.querySelector('button')?.focus();
  }

  private rename(row: HTMLElement, conversation: Conversation): void {
    const field = h('input', {class: 'field', dir: 'auto', 'aria-label': t.rename});
    field.value = conversation.title;
    let isDone = false;
    const end = (keep: boolean) => {
      if (isDone) return;
      isDone = true;
      if (keep && field.value.trim()) this.actions.rename(conversation, field.value.trim());
      else this.draw();
    };
    field.addEventListener('keydown', (event) => {
      if (event.isComposing) return;
      event.stopPropagation();
      if (event.key === 'Enter') end(true);
      if (event.key === 'Escape') end(false);
    });
    field.addEventListener('blur', () => end(true));
    row.replaceChildren(field);
    field.focus();
    field.select();
  }
}
