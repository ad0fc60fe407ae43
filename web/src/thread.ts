// The branch that is shown, in a part of the page that scrolls.

import {h, iconButton} from './dom';
import type {Live} from './generation';
import {MessageView, type MessageActions} from './messageview';
import {dropSlices} from './slices';
import {t} from './texts';
import type {Tree} from './tree';
import type {Message} from './types';

/** So near to the end, the page follows an answer. */
const NEAR = 64;

export class Thread {
  readonly element = h('main', {class: 'thread', id: 'thread', tabindex: -1});
  private readonly list = h('div', {class: 'column'});
  private readonly toEnd = iconButton('down', t.toEnd, () => this.follow(), {class: 'icon-button to-end', hidden: true});
  private readonly views = new Map<string, MessageView>();
  private shown: string[] = [];
  private follows = true;
  private frame = 0;

  constructor(private readonly actions: MessageActions) {
    this.element.append(this.list, this.toEnd);
    this.element.addEventListener('scroll', () => {
      const {scrollHeight, scrollTop, clientHeight} = this.element;
      this.follows = scrollHeight - scrollTop - clientHeight < NEAR;
      this.toEnd.hidden = this.follows;
    });
  }

  /** Shows `notice` in place of messages. */
  showEmpty(notice: HTMLElement): void {
    this.clear();
    this.list.replaceChildren(notice);
  }

  clear(): void {
    dropSlices();
    this.views.clear();
    this.shown = [];
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
    const fresh: MessageView[] = [];
    path.forEach((message, i) => {
      const place = {siblings: tree.siblings(message), path: path.slice(0, i), system};
      const known = this.views.get(message.id);
      if (known) return known.update(message, place);
      const view = new MessageView(message, place, this.actions);
      this.views.set(message.id, view);
      this.list.append(view.element);
      if (live?.message.id !== message.id) fresh.push(view);
    });
    this.markStart(path, start);
    // The last message is what the reader looks at.
    for (const view of fresh.reverse()) view.draw(() => this.stay());
    this.stay();
  }

  /** Draws more of an answer in the next frame. */
  grow(live: Live): void {
    const draw = () => {
      this.frame = 0;
      this.views.get(live.message.id)?.grow(live);
      this.stay();
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

  /** A line above the first message that the model reads. */
  private markStart(path: readonly Message[], start: string | undefined): void {
    this.list.querySelector('.cut')?.remove();
    if (!start || !path.slice(1).some((message) => message.id === start)) return;
    this.views.get(start)?.element.before(h('div', {class: 'cut', role: 'note'}, h('span', {}, t.cutHere)));
  }
}
