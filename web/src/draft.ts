// The message that is not sent yet. The tab keeps it, so it outlives a reload.

import type {TextFile} from './types';

/** The files have a record of their own: they may be too large to be kept. */
const TEXT = 'qwen-draft';
const FILES = 'qwen-draft-files';

function read(key: string): string | null {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}

function write(key: string, value: string): void {
  try {
    sessionStorage.removeItem(key);
    if (value) sessionStorage.setItem(key, value);
  } catch {
    // A browser that keeps nothing, or not so much.
  }
}

export const draft = {
  get text(): string {
    return read(TEXT) ?? '';
  },
  set text(value: string) {
    write(TEXT, value);
  },
  get files(): TextFile[] {
    return JSON.parse(read(FILES) || '[]') as TextFile[];
  },
  set files(files: readonly TextFile[]) {
    write(FILES, files.length > 0 ? JSON.stringify(files) : '');
  },
};
