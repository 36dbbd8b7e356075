// Short messages at the edge of the page.

import { button, el, icon } from './element.js';

const SHOWN_FOR = 6000;

// Live regions must be in the page before they speak.
const said = el('div', { role: 'status' });
const complained = el('div', { role: 'alert' });

/** Puts the notices into the page. */
export function mountNotices(place) {
  place.replaceChildren(complained, said);
}

function show(region, kind, shape, text) {
  const node = el('div', { class: `notice ${kind}` }, icon(shape), el('p', { text }),
    button('close', '', () => node.remove(), { class: 'quiet', label: 'Dismiss' }));
  region.replaceChildren(node);
  return node;
}

/** Says that something was done. It leaves by itself. */
export function say(text) {
  const node = show(said, 'done', 'check', text);
  setTimeout(() => node.remove(), SHOWN_FOR);
}

/** Says that something went wrong. It stays until dismissed or replaced. */
export function complain(text) {
  show(complained, 'failed', 'warning', text);
}

/** Takes back what was complained about. */
export function settle() {
  complained.replaceChildren();
}
