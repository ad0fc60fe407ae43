// Elements without HTML: text is never parsed here.

type Attribute = string | number | boolean | null | undefined | ((event: never) => void);
export type Child = Node | string | null | undefined | false;

/** An element with attributes, listeners (`onclick`) and children. An attribute
 * that is false, null or undefined is left out. */
export function h<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: {[name: string]: Attribute} = {},
  ...children: Child[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(key.slice(2), value as EventListener);
    else if (value === true) element.setAttribute(key, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, String(value));
  }
  add(element, ...children);
  return element;
}

export function add(element: Element | DocumentFragment, ...children: Child[]): void {
  for (const child of children) if (child) element.append(child);
}

const SVG = 'http://www.w3.org/2000/svg';
const PATHS = {
  add: 'M12 5v14M5 12h14',
  send: 'M12 19V6M6 11l6-6 6 6',
  stop: 'M8 8h8v8H8z',
  menu: 'M4 7h16M4 12h16M4 17h16',
  settings: 'M4 8h9M19 8h1M4 16h3M13 16h7M13 5v6M7 13v6',
  close: 'M6 6l12 12M18 6L6 18',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  done: 'M5 13l4 4L19 7',
  edit: 'M5 19l1-4L16 5l3 3L9 18z',
  redo: 'M19 12a7 7 0 1 1-2-5l2 2M19 4v5h-5',
  same: 'M6 10h12M6 14h12',
  tokens: 'M4 18V9M9 18V5M14 18v-6M19 18V8',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  more: 'M6 12h.01M12 12h.01M18 12h.01',
  file: 'M7 3h7l4 4v14H7zM14 3v4h4',
  clip: 'M19 11l-7.5 7.5a4 4 0 0 1-6-6L13 5a2.7 2.7 0 0 1 4 4l-7.5 7.5a1.3 1.3 0 0 1-2-2L14 8',
  search: 'M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14M16 16l4 4',
  down: 'M12 5v14M6 13l6 6 6-6',
  remove: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  info: 'M12 11v6M12 7h.01M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18',
  theme: 'M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18',
  key: 'M14 10a4 4 0 1 1-3-3.9M13 11l7 7M17 15l2-2',
  save: 'M12 4v11M7 10l5 5 5-5M5 20h14',
  open: 'M12 16V5M7 10l5-5 5 5M5 20h14',
} as const;
export type IconName = keyof typeof PATHS;

export function icon(name: IconName): SVGSVGElement {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', PATHS[name]);
  svg.append(path);
  return svg;
}

/** A button with an icon only, whose name screen readers say. */
export function iconButton(
  name: IconName,
  label: string,
  onclick: (event: MouseEvent) => void,
  more: {[name: string]: Attribute} = {},
): HTMLButtonElement {
  return h('button', {type: 'button', class: 'icon-button', 'aria-label': label, title: label, onclick, ...more}, icon(name));
}

export function copyText(text: string, button: HTMLButtonElement): void {
  const show = (name: IconName) => button.querySelector('svg')?.replaceWith(icon(name));
  const copied = () => {
    show('done');
    setTimeout(() => show('copy'), 1500);
  };
  if (navigator.clipboard) {
    navigator.clipboard.writeText(text).then(copied, () => undefined);
    return;
  }
  // Without HTTPS, browsers have no clipboard but on this machine.
  const field = h('textarea', {class: 'unseen', readonly: true});
  field.value = text;
  document.body.append(field);
  field.select();
  if (document.execCommand('copy')) copied();
  field.remove();
  button.focus();
}
