// What the API says of a sandbox, in words.

import { el, setText } from './element.js';

const WORDS = {
  creating: 'Starting', running: 'Running', pausing: 'Pausing', paused: 'Paused',
  resuming: 'Resuming', deleting: 'Deleting', failed: 'Failed',
};

/** Whether the API is at work on the sandbox. */
export function isMoving(state) {
  return ['creating', 'pausing', 'resuming', 'deleting'].includes(state);
}

/** When the sandbox was made. A resume starts it again and makes it no younger. */
export function made(item) {
  return item.createdAt ?? item.startedAt;
}

/** The word for a state; one the page does not know is shown as it is. */
export function stateWord(state) {
  return WORDS[state] ?? state;
}

/** A badge with a show(state) method. */
export function badge(state) {
  const word = el('span');
  const node = el('span', { class: 'badge' }, el('span', { class: 'dot' }), word);
  node.show = (now) => {
    node.dataset.state = isMoving(now) ? 'moving' : now;
    setText(word, stateWord(now));
  };
  node.show(state);
  return node;
}
