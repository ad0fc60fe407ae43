// Definitions of links, such as "[1]: https://example.org", in a text that
// grows. A reference may stand before its definition.

import type {Links, Tokens} from 'marked';

/** A block of markdown on the page. */
export interface Shown {
  /** Its source. */
  raw: string;
  nodes: ChildNode[];
}

/** A label as marked compares it. */
function labelOf(text: string): string {
  return text.trim().replace(/\s+/g, ' ').toLowerCase().toUpperCase().toLowerCase();
}

export class LinkDefinitions {
  /** The definitions so far by their labels. The first of a label holds. */
  readonly links: Links = Object.create(null) as Links;
  /** The number of definitions before that of a label. */
  private readonly order = new Map<string, number>();
  /** Blocks that show a label as text, because it has no definition. */
  private readonly waiting = new Map<string, Shown[]>();
  /** Blocks whose labels have got a definition. */
  private readonly outdated = new Set<Shown>();

  get count(): number {
    return this.order.size;
  }

  add({tag, href, title}: Tokens.Def): void {
    if (this.order.has(tag)) return;
    this.order.set(tag, this.count);
    this.links[tag] = {href, title};
    for (const block of this.waiting.get(tag) ?? []) this.outdated.add(block);
    this.waiting.delete(tag);
  }

  /** Notes the labels of a block that was parsed with the first `known`
   * definitions. */
  watch(block: Shown, known: number): void {
    // A label has no bracket and, in CommonMark, at most 999 characters.
    const labels = new Set(Array.from(block.raw.matchAll(/\[((?:\\[^]|[^[\]\\]){1,999})\]/g), (match) => labelOf(match[1]!)));
    for (const label of labels) {
      const order = this.order.get(label);
      if (order !== undefined) {
        if (order >= known) this.outdated.add(block);
        continue;
      }
      const blocks = this.waiting.get(label);
      if (blocks) blocks.push(block);
      else this.waiting.set(label, [block]);
    }
  }

  /** A block to build again, or undefined. */
  next(): Shown | undefined {
    const [block] = this.outdated;
    if (block) this.outdated.delete(block);
    return block;
  }
}
