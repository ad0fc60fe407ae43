// The only place where text of a model becomes HTML.
//
// The page has no other use of HTML as text, so the only policy of trusted
// types is here, and it is not exported.

import DOMPurify, {type Config} from 'dompurify';

/** False in a build for the test that the Content-Security-Policy holds alone. */
declare const SANITIZE: boolean;

/** What markdown makes, and the tags that models write for what markdown lacks.
 * No element here loads anything, sends anything or covers the page. */
const TAGS = [
  'a', 'b', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'i', 'img', 'ins', 'kbd',
  'li', 'mark', 'ol', 'p', 'pre', 's', 'small', 'span', 'strong', 'sub', 'sup', 'table', 'tbody', 'td', 'th', 'thead', 'tr',
  'u', 'ul',
]; // prettier-ignore

/** Those of them that may stand in an answer as HTML. */
const HTML_TAGS = new Set(['b', 'br', 'del', 'em', 'i', 'ins', 'kbd', 'mark', 's', 'small', 'strong', 'sub', 'sup', 'u']);

const CONFIG: Config = {
  ALLOWED_TAGS: TAGS,
  // Neither style nor class: an answer cannot look like a part of the page. Neither id nor name: it cannot be taken for one.
  ALLOWED_ATTR: ['href', 'title', 'src', 'alt', 'start', 'align', 'data-part'],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|data:image\/(?:png|jpeg|gif|webp);base64,)/i,
  // Their values are no addresses.
  ADD_URI_SAFE_ATTR: ['align', 'data-part', 'start'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const policy = window.trustedTypes?.createPolicy('qwen-page', {createHTML: (html: string) => html});
// DOMPurify wants a policy that makes URLs of scripts too, and never asks for one.
if (policy) CONFIG.TRUSTED_TYPES_POLICY = policy as NonNullable<Config['TRUSTED_TYPES_POLICY']>;

DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName === 'A') {
    // An image's data is for an image, not for a link.
    if (/^data:/i.test(node.getAttribute('href') ?? '')) node.removeAttribute('href');
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer');
  } else if (node.nodeName === 'IMG' && !/^data:/i.test(node.getAttribute('src') ?? '')) {
    // The address of an image can carry the conversation to another machine.
    node.remove();
  }
});

/** Whether a tag of an answer stays HTML. Others are shown as text: code
 * outside of a code block does not vanish. */
export function isHtml(tag: string): boolean {
  if (!SANITIZE) return true;
  const match = /^<\/?([a-z][a-z0-9]*)[^<>]*>$/i.exec(tag.trim());
  return match !== null && HTML_TAGS.has(match[1]!.toLowerCase());
}

export function toFragment(html: string): DocumentFragment {
  if (SANITIZE) return DOMPurify.sanitize(html, CONFIG) as unknown as DocumentFragment;
  const template = document.createElement('template');
  template.innerHTML = (policy ? policy.createHTML(html) : html) as string;
  return document.importNode(template.content, true);
}
