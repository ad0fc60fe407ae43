// Conversations in IndexedDB. Each message is a record of its own, so that an
// answer that grows is saved without the rest, and two tabs never write the
// same record.

import type {Conversation, Message} from './types';

const NAME = 'qwen-page';
const VERSION = 1;

/** Tells the other tabs which conversation changed. */
const channel = 'BroadcastChannel' in globalThis ? new BroadcastChannel(NAME) : null;

function answerOf<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function open(): Promise<IDBDatabase> {
  const request = indexedDB.open(NAME, VERSION);
  request.onupgradeneeded = () => {
    request.result.createObjectStore('conversations', {keyPath: 'id'});
    request.result.createObjectStore('messages', {keyPath: 'id'}).createIndex('conversation', 'conversation');
  };
  return answerOf(request);
}

export class Store {
  /** Without a database, all is kept in memory. */
  private database: IDBDatabase | null = null;
  private readonly conversations = new Map<string, Conversation>();
  private readonly messages = new Map<string, Message>();
  /** Conversations that were removed: an answer that still grows must not bring
   * them back. */
  private readonly removed = new Set<string>();

  /** `failed` is called when the database takes no more. */
  constructor(private readonly failed: () => void) {}

  /** Opens the database; `isKept` tells whether that worked. */
  async open(): Promise<void> {
    try {
      this.database = await open();
    } catch {
      this.database = null;
    }
  }

  get isKept(): boolean {
    return this.database !== null;
  }

  private table(name: string, mode: IDBTransactionMode): IDBObjectStore {
    return this.database!.transaction(name, mode).objectStore(name);
  }

  /** All conversations, the last changed first. */
  async list(): Promise<Conversation[]> {
    const all: Conversation[] = this.database
      ? await answerOf(this.table('conversations', 'readonly').getAll())
      : [...this.conversations.values()];
    return all.sort((a, b) => b.updated - a.updated);
  }

  async conversation(id: string): Promise<Conversation | undefined> {
    if (!this.database) return this.conversations.get(id);
    return answerOf(this.table('conversations', 'readonly').get(id));
  }

  async messagesOf(conversation: string): Promise<Message[]> {
    if (!this.database) return [...this.messages.values()].filter((each) => each.conversation === conversation);
    return answerOf(this.table('messages', 'readonly').index('conversation').getAll(conversation));
  }

  async putConversation(conversation: Conversation): Promise<void> {
    if (this.removed.has(conversation.id)) return;
    if (this.database) await this.put('conversations', conversation);
    else this.conversations.set(conversation.id, structuredClone(conversation));
    channel?.postMessage(conversation.id);
  }

  async putMessage(message: Message): Promise<void> {
    if (this.removed.has(message.conversation)) return;
    if (this.database) await this.put('messages', message);
    else this.messages.set(message.id, structuredClone(message));
  }

  private async put(table: string, record: Conversation | Message): Promise<void> {
    try {
      await answerOf(this.table(table, 'readwrite').put(record));
    } catch {
      this.failed();
    }
  }

  async remove(conversation: string): Promise<void> {
    this.removed.add(conversation);
    if (this.database) {
      const transaction = this.database.transaction(['conversations', 'messages'], 'readwrite');
      transaction.objectStore('conversations').delete(conversation);
      const messages = transaction.objectStore('messages');
      for (const key of await answerOf(messages.index('conversation').getAllKeys(conversation))) messages.delete(key);
    } else {
      this.conversations.delete(conversation);
      for (const [id, message] of this.messages) if (message.conversation === conversation) this.messages.delete(id);
    }
    channel?.postMessage(conversation);
  }

  /** The conversations with a message that has `text`, in any case. Reads a
   * few messages at a time, so that no search holds up the page. */
  async search(text: string, signal: AbortSignal): Promise<Set<string>> {
    const wanted = text.toLocaleLowerCase();
    const found = new Set<string>();
    const look = (message: Message) => {
      if (found.has(message.conversation)) return;
      const texts = [message.text, message.reasoning ?? '', ...(message.files ?? []).map((file) => file.text)];
      if (texts.some((each) => each.toLocaleLowerCase().includes(wanted))) found.add(message.conversation);
    };
    if (!this.database) {
      this.messages.forEach(look);
      return found;
    }
    const BATCH = 16;
    for (let last: string | undefined; !signal.aborted; ) {
      const range = last === undefined ? null : IDBKeyRange.lowerBound(last, true);
      const messages: Message[] = await answerOf(this.table('messages', 'readonly').getAll(range, BATCH));
      messages.forEach(look);
      if (messages.length < BATCH) break;
      last = messages[messages.length - 1]!.id;
    }
    return found;
  }

  /** Calls `changed` with the id of each conversation that another tab changes. */
  onChange(changed: (conversation: string) => void): void {
    channel?.addEventListener('message', (event: MessageEvent<unknown>) => {
      if (typeof event.data === 'string') changed(event.data);
    });
  }
}
