// The state of the page, and what the reader's actions do to it.

import {say, Sentences} from './announce';
import {listModels, RequestError, type Model} from './api';
import {Composer} from './composer';
import {aboutDialog, confirmDialog, keyDialog} from './dialogs';
import {h, iconButton} from './dom';
import {dropUnknown, exportText, importText, saveFile} from './exchange';
import {Generation} from './generation';
import {loadSchema, type Schema} from './schema';
import {settingsDialog} from './settingsview';
import {listenForFiles, listenForKeys} from './shortcuts';
import {Sidebar} from './sidebar';
import {Store} from './store';
import {newTalk, type Talk} from './talk';
import {count, percent, t} from './texts';
import {Thread} from './thread';
import {tokenDialog} from './tokenview';
import {Tree} from './tree';
import {newId, type Conversation, type Message, type Origin, type TextFile} from './types';

const LAST = 'qwen-last';
/** Time between two saves of an answer that grows. */
const SAVE_EVERY = 2000;
/** Time between two looks at which models are loaded. */
const WATCH_EVERY = 3000;

export class App {
  private readonly store = new Store(() => this.tell(t.notSaved));
  /** The number of conversations that were opened: only the last one shows. */
  private opened = 0;
  /** What is shown. */
  private talk: Talk = newTalk(this.blank(), new Tree());
  /** Conversations with an answer that is written or tried again, by their ids. */
  private readonly active = new Map<string, Talk>();
  private models: Model[] = [];
  private watching = 0;
  private schema: Schema | null = null;
  /** Drawn anew when the server has told its settings. */
  private settings: HTMLDialogElement | null = null;

  private readonly title = h('h1', {dir: 'auto'});
  private readonly model = h('select', {class: 'field model', 'aria-label': t.model, hidden: true});
  private readonly modelName = h('span', {class: 'model-name'});
  private readonly notice = h('div', {class: 'notice', role: 'status', hidden: true});
  private readonly thread: Thread;
  private readonly composer: Composer;
  private readonly sidebar: Sidebar;
  private readonly frame: HTMLElement;

  constructor() {
    this.thread = new Thread({
      edit: (message, text) => this.send(text, message.files ?? [], message.parent),
      regenerate: (message) => this.answer(message.parent!, {...this.origin(), seed: ''}),
      again: (message) => this.again(message),
      tokens: (message) => tokenDialog(message, this.tree.path(message.parent)),
      useSeed: (seed) => this.useSeed(seed),
      show: (message, button) => this.showBranch(message, button),
      readAll: () => this.startAt(undefined),
      failure: (message) => ({
        retry: () => void this.run(this.talk, message),
        askKey: () =>
          keyDialog(() => {
            if (!this.schema) void this.connect();
            void this.run(this.talk, message);
          }),
        startAt: (start) => {
          this.startAt(start);
          message.origin!.start = start;
          void this.run(this.talk, message);
        },
      }),
    });
    this.composer = new Composer({
      send: (text, files) => this.send(text, files, this.conversation.leaf),
      stop: () => this.talk.generation?.stop(),
      editLast: () => this.thread.editLast(),
    });
    this.sidebar = new Sidebar({
      create: () => this.open(null),
      open: (id) => void this.open(id),
      rename: (conversation, title) => void this.rename(conversation, title),
      remove: (conversation) => void this.remove(conversation),
      export: (conversation) => void this.export(conversation),
      import: (files) => void this.import(files),
      about: aboutDialog,
      search: (text, signal) => this.store.search(text, signal),
    });
    this.model.addEventListener('change', () => {
      this.conversation.model = this.model.value;
      void this.saveConversation(false);
      // The last settings stay where the server does not tell others.
      const show = () => this.show();
      void this.learnModel().then(show, show);
    });
    const header = h(
      'header',
      {class: 'top'},
      iconButton('menu', t.menu, () => this.toggleSidebar(), {'aria-controls': 'sidebar', id: 'menu'}),
      this.title,
      this.modelName,
      this.model,
      iconButton('settings', t.settings, () => this.openSettings(), {id: 'settings'}),
    );
    const main = h('div', {class: 'main'}, header, this.notice, this.thread.element, this.composer.element, h('div', {class: 'drop', 'aria-hidden': 'true'}, t.dropHere));
    const shade = h('div', {class: 'shade', onclick: () => this.toggleSidebar(false)});
    this.frame = h('div', {class: 'frame'}, this.sidebar.element, shade, main);
    listenForKeys({
      leave: () => {
        if (this.frame.classList.contains('sidebar-open')) this.toggleSidebar(false);
        else this.talk.generation?.stop();
      },
      search: () => {
        this.frame.classList.remove('sidebar-closed');
        this.toggleSidebar(true);
        this.sidebar.focusSearch();
      },
      create: () => void this.open(null),
      settings: () => this.openSettings(),
    });
    listenForFiles(this.frame, (files) => void this.composer.add(files));
  }

  private get conversation(): Conversation {
    return this.talk.conversation;
  }

  private get tree(): Tree {
    return this.talk.tree;
  }

  async start(): Promise<void> {
    document.body.prepend(this.frame);
    this.toggleSidebar(false);
    this.show();
    this.composer.restore();
    this.composer.field.focus();
    await this.store.open();
    if (!this.store.isKept) this.tell(t.notKept);
    this.store.onChange((id) => void this.onOtherTab(id));
    await this.showList();
    await this.connect();
  }

  /** Asks the server for its models and settings. */
  private async connect(): Promise<void> {
    try {
      [this.models, this.schema] = await Promise.all([listModels(), loadSchema()]);
      if (!this.models.some((each) => each.id === this.conversation.model)) this.conversation.model = this.models[0]?.id ?? '';
      // Of several models, the chosen one may have other settings.
      if (this.chosenModel?.state === 'loaded') await this.learnModel();
      this.watchModels();
      if (this.notice.dataset['kind'] === 'server') this.tell('');
      this.show();
      if (this.settings?.open) this.openSettings();
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      if (error.failure.kind === 'key') return keyDialog(() => void this.connect());
      this.tell(error.failure.message, 'server', () => void this.connect());
    }
  }

  private get chosenModel(): Model | undefined {
    return this.models.find((each) => each.id === this.conversation.model);
  }

  /** Asks for the settings of the chosen model. That must not load it. */
  private async learnModel(): Promise<void> {
    this.schema = await loadSchema(this.chosenModel?.state === 'loaded' ? this.conversation.model : undefined);
  }

  /** Looks from time to time which models are loaded, where the server has several. */
  private watchModels(): void {
    clearInterval(this.watching);
    if (!this.models.some(({state}) => state !== undefined)) return;
    this.watching = window.setInterval(() => {
      if (!document.hidden) void this.lookAtModels().catch(() => undefined);
    }, WATCH_EVERY);
  }

  private async lookAtModels(): Promise<void> {
    const before = JSON.stringify(this.models), state = this.chosenModel?.state;
    this.models = await listModels();
    if (JSON.stringify(this.models) === before) return;
    if (this.chosenModel?.state !== state) await this.learnModel();
    this.showModels();
  }

  private showModels(): void {
    this.model.hidden = this.models.length < 2;
    this.modelName.hidden = this.models.length !== 1;
    const nameOf = ({id, state, progress}: Model) => (state === 'loading' ? t.modelState(id, percent(progress)) : id);
    this.modelName.textContent = this.models[0] ? nameOf(this.models[0]) : '';
    const names = this.models.map((each) => nameOf(each));
    const options = [...this.model.options];
    // New options would close a list that is open.
    if (options.length === names.length && this.models.every(({id}, i) => options[i]!.value === id))
      options.forEach((option, i) => (option.textContent = names[i]!));
    else this.model.replaceChildren(...this.models.map(({id}, i) => h('option', {value: id}, names[i]!)));
    this.model.value = this.conversation.model;
  }

  private tell(text: string, kind = '', retry?: () => void): void {
    this.notice.hidden = text === '';
    this.notice.dataset['kind'] = kind;
    const close = iconButton('close', t.close, () => this.tell(''));
    this.notice.replaceChildren(h('span', {}, text));
    if (retry) this.notice.append(h('button', {type: 'button', class: 'button', onclick: retry}, t.retry));
    this.notice.append(close);
  }

  // Conversations

  private blank(): Conversation {
    const now = Date.now();
    const empty: Conversation = {id: newId(), title: '', created: now, updated: now, model: '', system: '', settings: {}, seed: '', leaf: null};
    try {
      // A new conversation has the settings of the last one.
      const last = JSON.parse(localStorage.getItem(LAST) ?? '{}') as Partial<Conversation>;
      return {...empty, system: last.system ?? '', settings: last.settings ?? {}, model: last.model ?? ''};
    } catch {
      return empty;
    }
  }

  private async open(id: string | null): Promise<void> {
    const ticket = ++this.opened;
    const talk = id ? (this.active.get(id) ?? (await this.load(id))) : undefined;
    if (ticket !== this.opened) return;
    this.talk = talk ?? newTalk(this.blank(), new Tree());
    if (!this.models.some((each) => each.id === this.conversation.model)) this.conversation.model = this.models[0]?.id ?? '';
    this.thread.clear();
    this.show();
    this.thread.follow();
    await this.showList();
    this.toggleSidebar(false);
    this.composer.field.focus();
  }

  private async load(id: string): Promise<Talk | undefined> {
    const conversation = await this.store.conversation(id);
    return conversation && newTalk(conversation, new Tree(await this.store.messagesOf(id)));
  }

  /** The state of a conversation that is shown or active: it is newer than what is kept. */
  private talkOf(id: string): Talk | undefined {
    return id === this.conversation.id ? this.talk : this.active.get(id);
  }

  private async saveConversation(isTouched = true, conversation = this.conversation): Promise<void> {
    const {system, settings, model} = conversation;
    if (conversation === this.conversation) localStorage.setItem(LAST, JSON.stringify({system, settings, model}));
    if (conversation.leaf === null) return;
    if (isTouched) conversation.updated = Date.now();
    await this.store.putConversation(conversation);
    await this.showList();
  }

  private async rename(conversation: Conversation, title: string): Promise<void> {
    const kept = this.talkOf(conversation.id)?.conversation ?? conversation;
    kept.title = title;
    await this.store.putConversation(kept);
    this.show();
    await this.showList();
  }

  private async remove(conversation: Conversation): Promise<void> {
    if (!(await confirmDialog(t.removeAsk(conversation.title || t.untitled), t.removeNote, t.remove))) return;
    this.active.get(conversation.id)?.generation?.stop();
    this.leave(conversation.id);
    await this.store.remove(conversation.id);
    if (conversation.id === this.conversation.id) await this.open(null);
    else await this.showList();
  }

  private async export(conversation: Conversation): Promise<void> {
    const talk = this.talkOf(conversation.id) ?? (await this.load(conversation.id));
    if (!talk) return;
    const {conversation: kept, tree} = talk;
    saveFile(kept.title || t.untitled, exportText(kept, tree.path(kept.leaf)));
  }

  private async import(files: readonly File[]): Promise<void> {
    // The server tells which settings it has.
    if (!this.schema) await this.connect();
    const told: string[] = [];
    let isDone = true;
    for (const file of files) {
      try {
        const {conversation, messages} = importText(await file.text(), file.name);
        const unknown = this.schema ? dropUnknown(conversation.settings, this.schema) : '';
        for (const message of messages) await this.store.putMessage(message);
        await this.store.putConversation(conversation);
        await this.open(conversation.id);
        told.push(t.imported(conversation.title));
        if (unknown) told.push(t.importedWithout(unknown));
        isDone &&= !unknown;
      } catch (error) {
        told.push(t.importFailed(file.name, (error as Error).message));
        isDone = false;
      }
    }
    this.tell(told.join(' '), isDone ? 'done' : '');
  }

  private async onOtherTab(id: string): Promise<void> {
    await this.showList();
    if (id !== this.conversation.id || this.active.has(id)) return;
    const other = await this.load(id);
    if (id !== this.conversation.id || this.active.has(id)) return;
    if (!other) return this.open(null);
    // Goes on where the other tab went on; else stays.
    const {leaf} = this.conversation;
    const extended = other.tree.path(other.conversation.leaf).some((message) => message.id === leaf);
    if (!extended && leaf !== null) other.conversation.leaf = leaf;
    this.talk = other;
    this.show();
  }

  // Messages

  private origin(): Origin {
    const {model, system, settings, seed, start} = this.conversation;
    const origin: Origin = {model, system, settings: structuredClone(settings), seed};
    return start ? {...origin, start} : origin;
  }

  private newMessage(role: Message['role'], parent: string | null, text: string): Message {
    return {id: newId(), conversation: this.conversation.id, parent, role, created: Date.now(), text};
  }

  private send(text: string, files: TextFile[], parent: string | null): void {
    if (this.talk.generation) return;
    const message = this.newMessage('user', parent, text);
    if (files.length > 0) message.files = files;
    this.tree.add(message);
    this.conversation.leaf = message.id;
    this.conversation.title ||= (text.trim() || files[0]?.name || '').split('\n')[0]!.slice(0, 60);
    void this.store.putMessage(message);
    this.answer(message.id, this.origin());
  }

  /** Begins a further answer to a message. */
  private answer(parent: string, origin: Origin, of?: Message): void {
    if (this.talk.generation) return;
    const message = this.newMessage('assistant', parent, '');
    message.origin = origin;
    this.tree.add(message);
    this.conversation.leaf = message.id;
    void this.run(this.talk, message, of);
  }

  private again(message: Message): void {
    this.answer(message.parent!, structuredClone(message.origin!), message);
  }

  private useSeed(seed: string): void {
    this.conversation.seed = seed;
    this.openSettings();
    document.getElementById('set-seed')?.focus();
    void this.saveConversation(false);
  }

  /** Runs the request of an answer, also while another conversation is shown.
   * `of`: the answer that it repeats. */
  private async run(talk: Talk, message: Message, of?: Message): Promise<void> {
    if (talk.generation) return;
    clearTimeout(talk.retryTimer);
    const sentences = new Sentences();
    let saved = Date.now();
    const {conversation, tree} = talk;
    const generation = new Generation(message, tree.path(message.parent), () => {
      if (this.talk === talk) {
        this.thread.grow(generation.live);
        sentences.update(message.text, generation.live.phase === 'done');
      }
      if (Date.now() - saved < SAVE_EVERY) return;
      saved = Date.now();
      void this.store.putMessage(message);
    });
    talk.generation = generation;
    this.active.set(conversation.id, talk);
    if (this.talk === talk) {
      this.show();
      this.thread.follow();
      say(t.working);
    }
    await this.saveConversation(true, conversation);
    await generation.run();
    talk.generation = null;
    for (const other of generation.others) tree.add(other);
    if (of && (message.finish === 'stop' || message.finish === 'length'))
      message.same = message.text === of.text && (message.reasoning ?? '') === (of.reasoning ?? '');
    for (const each of [message, ...generation.others]) await this.store.putMessage(each);
    await this.store.putConversation(conversation);
    // Meanwhile the reader may have asked for another one.
    if (talk.generation) return;
    if (this.talk === talk) this.show();
    // A failure is an alert by itself.
    if (this.talk === talk && !message.failure) say(t.ready);
    if (message.failure?.kind === 'busy') this.retryLater(talk, message, message.failure.retryAfter ?? 3);
    else this.leave(conversation.id);
    await this.showList();
  }

  /** Lets nothing more happen in a conversation by itself. */
  private leave(id: string): void {
    clearTimeout(this.active.get(id)?.retryTimer);
    this.active.delete(id);
  }

  /** Tries again after some seconds, and counts them. */
  private retryLater(talk: Talk, message: Message, seconds: number): void {
    if (seconds <= 0) return void this.run(talk, message);
    if (this.talk === talk) {
      const button = this.thread.element.querySelector(`[data-id="${message.id}"] .failure button`);
      // The reader looks at another branch.
      if (!button) return this.leave(talk.conversation.id);
      button.textContent = t.retryIn(seconds);
    }
    talk.retryTimer = window.setTimeout(() => this.retryLater(talk, message, seconds - 1), 1000);
  }

  /** Begins the next prompts with a later message, or with the first. */
  private startAt(start: string | undefined): void {
    if (start) this.conversation.start = start;
    else delete this.conversation.start;
    this.show();
    void this.saveConversation(false);
  }

  private showBranch(message: Message, button: string): void {
    if (this.talk.generation) return;
    this.conversation.leaf = this.tree.newestLeaf(message.id);
    this.show();
    // The button of the new branch takes the place of the one that was used.
    const buttons = this.thread.element.querySelectorAll<HTMLButtonElement>(`[data-id="${message.id}"] [data-branch]:enabled`);
    ([...buttons].find((each) => each.dataset['branch'] === button) ?? buttons[0])?.focus();
    void this.saveConversation(false);
  }

  // The page

  private async showList(): Promise<void> {
    this.sidebar.show(await this.store.list(), this.conversation.id, new Set(this.active.keys()));
  }

  private show(): void {
    const {conversation} = this;
    const path = this.tree.path(conversation.leaf);
    const title = conversation.title || t.untitled;
    this.title.textContent = title;
    document.title = path.length > 0 ? `${title} · Qwen` : 'Qwen';
    this.showModels();
    this.frame.classList.toggle('is-empty', path.length === 0);
    if (path.length > 0) this.thread.show(path, this.tree, conversation.system, conversation.start, this.talk.generation?.live ?? null);
    else this.thread.showEmpty(this.welcome());
    const live = this.talk.generation?.live;
    if (live) this.thread.grow(live);
    this.composer.setBusy(live !== undefined);
    // What had the focus may be gone. A phone would show its keyboard.
    if (document.activeElement === document.body && !matchMedia('(pointer: coarse)').matches)
      this.composer.field.focus({preventScroll: true});
  }

  private welcome(): HTMLElement {
    const model = this.chosenModel;
    const facts = model?.context ? t.welcomeFacts(count(model.context)) : '';
    const isLoaded = model?.state === undefined || model.state === 'loaded';
    return h(
      'div',
      {class: 'welcome'},
      h('h2', {}, t.welcome(model?.id ?? 'Qwen')),
      h('p', {}, t.welcomeNote, ' ', facts, isLoaded ? '' : ` ${t.modelUnloaded}`),
      h('p', {}, t.welcomeSeed),
    );
  }

  private openSettings(): void {
    this.settings?.close();
    this.settings = settingsDialog(this.conversation, this.schema, () => void this.saveConversation(false));
  }

  private toggleSidebar(open?: boolean): void {
    const isNarrow = matchMedia('(max-width: 56rem)').matches;
    const {classList} = this.frame;
    if (isNarrow) classList.toggle('sidebar-open', open);
    else if (open === undefined) classList.toggle('sidebar-closed');
    const isOpen = isNarrow ? classList.contains('sidebar-open') : !classList.contains('sidebar-closed');
    document.getElementById('menu')?.setAttribute('aria-expanded', String(isOpen));
  }
}
