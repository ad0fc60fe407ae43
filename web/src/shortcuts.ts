// Keys and files for the page as a whole.

export interface KeyActions {
  /** Leaves what is open, or stops the answer. */
  leave(): void;
  search(): void;
  create(): void;
  settings(): void;
}

export function listenForKeys(actions: KeyActions): void {
  document.addEventListener('keydown', (event) => {
    const isControl = event.ctrlKey || event.metaKey;
    const isDialog = document.querySelector('dialog[open]') !== null;
    const name = event.key.toLowerCase();
    let action: (() => void) | null = null;
    if (isDialog) return;
    if (name === 'escape') return actions.leave();
    if (isControl && !event.shiftKey && name === 'k') action = actions.search;
    if (isControl && event.shiftKey && name === 'o') action = actions.create;
    if (isControl && name === ',') action = actions.settings;
    if (!action) return;
    event.preventDefault();
    action();
  });
}

/** Takes files that are dropped anywhere. */
export function listenForFiles(frame: HTMLElement, take: (files: File[]) => void): void {
  const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;
  document.addEventListener('dragover', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    frame.classList.add('dragging');
  });
  document.addEventListener('dragleave', (event) => {
    if (event.relatedTarget === null) frame.classList.remove('dragging');
  });
  document.addEventListener('drop', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    frame.classList.remove('dragging');
    take([...(event.dataTransfer?.files ?? [])]);
  });
}
