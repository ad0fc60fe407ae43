// A message on the page.

import {copyText, h, icon, iconButton} from './dom';
import {failureView, type FailureActions} from './failure';
import type {Live} from './generation';
import {MarkdownView} from './markdown';
import {bubble, editor} from './promptview';
import {slice} from './slices';
import {count, percent, rate, t} from './texts';
import type {Message} from './types';

/** What the reader can do with a message. */
export interface MessageActions {
  edit(message: Message, text: string): void;
  regenerate(message: Message): void;
  again(message: Message): void;
  tokens(message: Message): void;
  useSeed(seed: string): void;
  /** Shows the branch of a sibling. `button` is the one that was used. */
  show(message: Message, button: string): void;
  /** Lets the model read what was left out. */
  readAll(): void;
  failure(message: Message): FailureActions;
}

/** Where a message stands. */
export interface Place {
  siblings: readonly Message[];
  /** The messages before it. */
  path: readonly Message[];
  system: string;
}

export class MessageView {
  readonly element: HTMLElement;
  private readonly footer = h('footer', {class: 'actions'});
  private readonly body = h('div', {class: 'body'});
  private readonly status = h('div', {class: 'status'});
  private readonly reasoning: HTMLDetailsElement;
  private readonly reasoningTitle = h('span', {}, t.reasoning);
  private reasoningView = new MarkdownView();
  private text = new MarkdownView();
  /** How much of the text and of the reasoning the views have. */
  private shown = 0;
  private shownReasoning = 0;
  /** Drawing a large last block takes longer, and then happens less often. */
  private nextTail = 0;
  private drawnKey = '';
  /** The try whose text the views have. */
  private drawn: Live | null = null;

  constructor(
    private message: Message,
    private place: Place,
    private readonly actions: MessageActions,
  ) {
    this.reasoning = h(
      'details',
      {class: 'reasoning', hidden: true},
      h('summary', {}, icon('right'), this.reasoningTitle),
      this.reasoningView.element,
    );
    const label = message.role === 'user' ? t.you : t.assistant;
    this.element = h('article', {class: `message ${message.role}`, 'aria-label': label, 'data-id': message.id});
    if (message.role === 'user') this.element.append(this.footer, this.body);
    else this.element.append(this.reasoning, this.body, this.status, this.footer);
  }

  /** Shows a finished message, in slices. */
  draw(): void {
    if (this.message.role === 'user') {
      this.body.replaceChildren(bubble(this.message));
      return this.drawFooter();
    }
    this.body.append(this.text.element);
    const size = this.message.text.length;
    // About the height of the text, until it is there.
    this.body.style.minHeight = size > 500 ? `${Math.round(size / 3.5)}px` : '';
    this.drawFooter();
    this.feed(true);
    slice((deadline) => {
      const isDone = this.text.work(deadline) && this.reasoningView.work(deadline);
      if (isDone) this.body.style.minHeight = '';
      return isDone;
    });
  }

  /** Shows what an answer has so far. Called at most once a frame. Returns
   * after how many milliseconds it has more to show, or null. */
  grow(live: Live): number | null {
    const isDone = live.phase === 'done';
    this.element.classList.toggle('live', !isDone);
    if (!this.text.element.isConnected) this.body.replaceChildren(this.text.element);
    if (live.hasBegun && this.drawn !== live) {
      // Each try begins anew: the views may have been told that no text comes.
      this.restart();
      this.drawn = live;
    }
    this.feed(isDone);
    const now = performance.now();
    let wait: number | null = null;
    const isBuilt = this.text.work(now + 8) && this.reasoningView.work(now + 12);
    if (isDone) {
      if (!isBuilt) slice((deadline) => this.text.work(deadline) && this.reasoningView.work(deadline));
    } else if (!isBuilt) {
      wait = 0;
    } else if (now < this.nextTail) {
      wait = this.nextTail - now;
    } else {
      this.text.showTail();
      if (!this.message.text) this.reasoningView.showTail();
      const took = performance.now() - now;
      this.nextTail = took > 4 ? now + took * 8 : 0;
    }
    this.reasoningTitle.textContent = isDone || this.message.text ? t.reasoning : t.reasoningRuns;
    this.drawStatus(live);
    if (isDone) this.drawFooter();
    return wait;
  }

  update(message: Message, place: Place): void {
    this.message = message;
    this.place = place;
    // A long conversation has many footers, few of which change.
    if (this.footerKey() !== this.drawnKey) this.drawFooter();
  }

  private footerKey(): string {
    const {finish, failure, same, origin} = this.message;
    return JSON.stringify([finish, failure, same, origin?.seed, this.place.siblings.map((each) => each.id), this.place.path.length]);
  }

  private restart(): void {
    this.text = new MarkdownView();
    this.reasoningView = new MarkdownView();
    this.reasoning.lastElementChild!.replaceWith(this.reasoningView.element);
    this.body.replaceChildren(this.text.element);
    this.shown = this.shownReasoning = 0;
    this.nextTail = 0;
  }

  private feed(isLast: boolean): void {
    const {text, reasoning = ''} = this.message;
    this.reasoning.hidden = reasoning.trim() === '';
    this.text.append(text.slice(this.shown));
    this.reasoningView.append(reasoning.slice(this.shownReasoning));
    this.shown = text.length;
    this.shownReasoning = reasoning.length;
    if (!isLast) return;
    this.text.finish();
    this.reasoningView.finish();
  }

  private drawStatus(live: Live): void {
    const {progress, queue, phase, loading} = live;
    if (phase === 'writing' && this.message.counts) {
      const {answer, tokensPerSecond} = this.message.counts;
      const speed = tokensPerSecond > 0 ? ` · ${t.tokensPerSecond(rate(tokensPerSecond))}` : '';
      return this.status.replaceChildren(h('span', {class: 'numbers'}, t.tokenCount(count(answer)) + speed));
    }
    // Beams have no text before their end.
    if (phase === 'reading' && progress?.done === progress?.total && Number(this.message.origin?.settings['num_beams']) > 1)
      return this.status.replaceChildren(h('span', {class: 'pulse'}), h('span', {}, t.searching));
    if (phase === 'reading' && progress) {
      const bar = h('progress', {max: progress.total, value: progress.done, 'aria-label': t.reading('', '')});
      const words = h('span', {class: 'numbers'}, t.reading(count(progress.done), count(progress.total)));
      return this.status.replaceChildren(bar, words);
    }
    if (phase === 'waiting') {
      const busy = queue ? t.queued(count(queue.running), count(queue.waiting)) : t.waiting;
      const words = loading ? t.loadingModel(loading.id, percent(loading.progress)) : busy;
      if (this.status.textContent !== words)
        this.status.replaceChildren(h('span', {class: 'pulse'}), h('span', {}, words));
      return;
    }
    this.status.replaceChildren();
  }

  private drawFooter(): void {
    const {message, place} = this;
    this.drawnKey = this.footerKey();
    const left = h('div', {class: 'row'});
    if (place.siblings.length > 1) left.append(this.branches());
    this.footer.classList.toggle('has-branches', place.siblings.length > 1);
    const copy = iconButton('copy', t.copy, () => copyText(message.text, copy));
    if (message.text) left.append(copy);
    if (message.role === 'user') {
      left.append( iconButton('edit', t.edit, () => this.edit()));
      return this.footer.replaceChildren(left);
    }
    const {origin, counts, failure, finish} = message;
    if (!failure) left.append(iconButton('redo', t.regenerate, () => this.actions.regenerate(message)));
    if (origin?.seed && !failure)
      left.append(this.sameButton());
    // The server tells no probabilities of beams.
    if (origin?.seed && !failure && !(Number(origin.settings['num_beams']) > 1))
      left.append(iconButton('tokens', t.tokens, () => this.actions.tokens(message)));
    const right = h('div', {class: 'row facts'});
    if (message.same !== undefined) right.append(this.verdict(message.same));
    if (counts) {
      const speed = counts.tokensPerSecond > 0 ? ` · ${t.tokensPerSecond(rate(counts.tokensPerSecond))}` : '';
      right.append(h('span', {class: 'numbers'}, t.tokenCount(count(counts.answer)) + speed));
    }
    if (message.score !== undefined) right.append(h('span', {class: 'numbers'}, t.score(message.score.toFixed(3))));
    if (origin?.seed) {
      const use = () => this.actions.useSeed(origin.seed);
      right.append(h('button', {type: 'button', class: 'link numbers', title: t.useSeed, onclick: use}, t.seedIs(origin.seed)));
    }
    this.footer.replaceChildren(left, right);
    const notes = {stopped: t.stopped, length: t.cutOff, stop: '', failed: ''};
    const note = finish ? notes[finish] : t.interrupted;
    this.status.replaceChildren();
    if (failure) this.status.append(failureView(failure, place.path, place.system, this.actions.failure(message)));
    else if (note) this.status.append(h('span', {class: 'note'}, note));
  }

  private sameButton(): HTMLElement {
    const onclick = () => this.actions.again(this.message);
    return h('button', {type: 'button', class: 'icon-button text', title: t.same, onclick}, icon('same'), t.sameShort);
  }

  private verdict(isSame: boolean): HTMLElement {
    return h(
      'span',
      {class: isSame ? 'verdict' : 'verdict different', title: isSame ? '' : t.sameNoHint},
      icon(isSame ? 'done' : 'info'),
      isSame ? t.sameYes : t.sameNo,
    );
  }

  private branches(): HTMLElement {
    const {siblings} = this.place;
    const at = siblings.findIndex((each) => each.id === this.message.id);
    const go = (step: number, button: string) => {
      const to = siblings[at + step];
      if (to) this.actions.show(to, button);
    };
    return h(
      'div',
      {class: 'branches', role: 'group', 'aria-label': t.branch(at + 1, siblings.length)},
      iconButton('left', t.previous, () => go(-1, 'previous'), {disabled: at === 0, 'data-branch': 'previous'}),
      h('span', {class: 'numbers', 'aria-hidden': 'true'}, `${at + 1}/${siblings.length}`),
      iconButton('right', t.next, () => go(1, 'next'), {disabled: at === siblings.length - 1, 'data-branch': 'next'}),
    );
  }

  /** Makes the prompt a field. */
  edit(): void {
    const leave = () => {
      this.body.replaceChildren(bubble(this.message));
      this.element.classList.remove('edited');
      this.footer.hidden = false;
      this.footer.querySelector('button')?.focus();
    };
    const field = editor(this.message, leave, (text) => this.actions.edit(this.message, text));
    this.footer.hidden = true;
    this.element.classList.add('edited');
    this.body.replaceChildren(field);
    field.querySelector('textarea')!.focus();
  }
}
