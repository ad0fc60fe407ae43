// The messages of a conversation as a tree. A branch is a way from a root to a
// leaf; an edit or another answer is a further child of the same parent.

import type {Message} from './types';

export class Tree {
  private readonly messages = new Map<string, Message>();
  private readonly children = new Map<string | null, Message[]>();

  constructor(messages: readonly Message[] = []) {
    for (const message of [...messages].sort((a, b) => a.created - b.created)) this.add(message);
  }

  /** Adds a message, or replaces the one with its id. */
  add(message: Message): void {
    const known = this.messages.has(message.id);
    this.messages.set(message.id, message);
    const siblings = this.children.get(message.parent) ?? [];
    if (known) siblings[siblings.findIndex((each) => each.id === message.id)] = message;
    else siblings.push(message);
    this.children.set(message.parent, siblings);
  }

  get(id: string): Message | undefined {
    return this.messages.get(id);
  }

  all(): Message[] {
    return [...this.messages.values()];
  }

  siblings(message: Message): readonly Message[] {
    return this.children.get(message.parent) ?? [message];
  }

  /** The messages from the root to `leaf`. */
  path(leaf: string | null): Message[] {
    const path: Message[] = [];
    const seen = new Set<string>();
    for (let id = leaf; id !== null && !seen.has(id); ) {
      const message = this.messages.get(id);
      if (!message) break;
      seen.add(id);
      path.push(message);
      id = message.parent;
    }
    return path.reverse();
  }

  /** The leaf of the newest branch below a message. */
  newestLeaf(id: string): string {
    for (;;) {
      const children = this.children.get(id);
      if (!children || children.length === 0) return id;
      id = children[children.length - 1]!.id;
    }
  }
}
