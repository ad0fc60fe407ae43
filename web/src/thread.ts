// The branch that is shown, in a part of the page that scrolls.

import {h, iconButton} from './dom';
import type {Live} from './generation';
import {MessageView, type MessageActions, type Place} from './messageview';
import {dropSlices, slice} from './slices';
import {t} from './texts';
import type {Tree} from './tree';
import type {Message} from './types';

/** So near to the end, the page follows an answer. */
const NEAR = 64;
/** Messages that are added at once. */
const AT_ONCE = 6;

export class Thread {
  readonly element = h('main', {class: 'thread', id: 'thread', tabindex: -1});
  private readonly list = h('div', {class: 'column'});
  private readonly toEnd = iconButton('down', t.toEnd, () => this.follow(), {class: 'icon-button to-end', hidden: true});
  private readonly views = new Map<string, MessageView>();
  private shown: string[] = [];
  private follows = true;
  private frame = 0;
  /** A timer for what a frame had no time for. */
  private later = 0;
  /** The last position, to tell the reader's scrolling from growth. */
  private top = 0;
  private height = 0;
  /** Messages that have no view yet, from the oldest. */
  private pending: {message: Message; place: Place}[] = [];

  constructor(private readonly actions: MessageActions) {
    this.element.append(this.list, this.toEnd);
    this.element.addEventListener('scroll', () => this.onScroll());
    // Whatever grows: the layout is done then, and is not forced before.
    const observer = new ResizeObserver(() => this.stay());
    observer.observe(this.list);
    observer.observe(this.element);
  }

  /** Shows `notice` in place of messages. */
  showEmpty(notice: HTMLElement): void {
    this.clear();
    this.list.replaceChildren(notice);
  }

  clear(): void {
    dropSlices();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.later);
    this.frame = this.later = 0;
    this.views.clear();
    this.shown = [];
    this.pending = [];
    this.list.replaceChildren();
  }

  /** Shows a branch. Messages that stay are not drawn again. */
  show(path: readonly Message[], tree: Tree, system: string, start: string | undefined, live: Live | null): void {
    const kept = path.findIndex((message, i) => this.shown[i] !== message.id);
    const same = kept < 0 ? path.length : kept;
    if (same === 0) this.clear();
    for (const id of this.shown.slice(same)) {
      this.views.get(id)?.element.remove();
      this.views.delete(id);
    }
    this.shown = path.map((message) => message.id);
    const fresh: {message: Message; place: Place}[] = [];
    const pending = new Set(this.pending.map((each) => each.message.id));
    this.pending = [];
    path.forEach((message, i) => {
      const place = {siblings: tree.siblings(message), path: path.slice(0, i), system};
      const known = this.views.get(message.id);
      if (known) known.update(message, place);
      else if (pending.has(message.id)) this.pending.push({message, place});
      else fresh.push({message, place});
    });
    // The last messages are what the reader looks at. The others follow.
    const now = fresh.splice(-AT_ONCE);
    if (fresh.length > 0) this.pending = fresh;
    const views = now.map(({message, place}) => this.addView(message, place, null));
    views.forEach((view, i) => {
      if (live?.message.id !== now[i]!.message.id) view.draw();
    });
    if (fresh.length > 0) slice((deadline) => this.addPending(deadline, start));
    this.markStart(start);
  }

  private addView(message: Message, place: Place, before: Element | null): MessageView {
    const view = new MessageView(message, place, this.actions);
    this.views.set(message.id, view);
    this.list.insertBefore(view.element, before);
    return view;
  }

  /** Adds older messages above. */
  private addPending(deadline: number, start: string | undefined): boolean {
    while (performance.now() < deadline) {
      const next = this.pending.pop();
      if (!next) {
        this.markStart(start);
        return true;
      }
      const view = this.addView(next.message, next.place, this.list.firstElementChild);
      view.draw();
    }
    return false;
  }

  /** Draws more of an answer in the next frame. */
  grow(live: Live): void {
    const draw = () => {
      this.frame = 0;
      const wait = this.views.get(live.message.id)?.grow(live) ?? null;
      if (wait === null || this.later) return;
      this.later = window.setTimeout(() => {
        this.later = 0;
        if (live.phase !== 'done') this.grow(live);
      }, wait);
    };
    // Frames stop in a tab that is out of sight, and an answer ends all the same.
    if (live.phase === 'done') {
      cancelAnimationFrame(this.frame);
      draw();
    } else if (!this.frame) {
      this.frame = requestAnimationFrame(draw);
    }
  }

  /** Goes to the end, and stays there. */
  follow(): void {
    this.follows = true;
    this.toEnd.hidden = true;
    this.stay();
  }

  editLast(): boolean {
    for (const id of [...this.shown].reverse()) {
      const view = this.views.get(id);
      if (!view?.element.classList.contains('user')) continue;
      view.edit();
      return true;
    }
    return false;
  }

  private stay(): void {
    if (this.follows) this.element.scrollTop = this.element.scrollHeight;
  }

  /** Only the reader scrolls up while nothing gets shorter. */
  private onScroll(): void {
    const {scrollHeight, scrollTop, clientHeight} = this.element;
    if (scrollHeight - scrollTop - clientHeight < NEAR) this.follows = true;
    else if (scrollTop < this.top - 1 && scrollHeight >= this.height) this.follows = false;
    this.top = scrollTop;
    this.height = scrollHeight;
    this.toEnd.hidden = this.follows;
  }

  /** A line above the first message that the model reads. */
  private markStart(start: string | undefined): void {
    this.list.querySelector('.cut')?.remove();
    const view = start ? this.views.get(start) : undefined;
    if (view?.element.previousElementSibling)
      view.element.before(
        h(
          'div',
          {class: 'cut', role: 'note'},
          h('span', {}, t.cutHere, ' ', h('button', {type: 'button', class: 'link', onclick: () => this.actions.readAll()}, t.readAll)),
        ),
      );
  }
}
