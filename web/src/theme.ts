// Light, dark, or as the system.

export type Theme = 'auto' | 'light' | 'dark';
const NAME = 'qwen-theme';

function apply(value: string): void {
  if (value === 'light' || value === 'dark') document.documentElement.dataset['theme'] = value;
  else delete document.documentElement.dataset['theme'];
}

export const theme = {
  get(): Theme {
    return (localStorage.getItem(NAME) as Theme | null) ?? 'auto';
  },
  set(value: Theme): void {
    localStorage.setItem(NAME, value);
    apply(value);
  },
};

try {
  apply(theme.get());
} catch {
  // Without storage, the theme is that of the system.
}
