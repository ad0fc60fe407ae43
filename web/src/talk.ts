// A conversation that is shown, or in which an answer is written.

import type {Generation} from './generation';
import type {Tree} from './tree';
import type {Conversation} from './types';

export interface Talk {
  conversation: Conversation;
  tree: Tree;
  generation: Generation | null;
  /** A timer until a busy server is asked again. */
  retryTimer: number;
}

export function newTalk(conversation: Conversation, tree: Tree): Talk {
  return {conversation, tree, generation: null, retryTimer: 0};
}
