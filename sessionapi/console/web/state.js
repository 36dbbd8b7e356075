// What the API says of a sandbox, in words.

import { ago, moment, secondsLeft, until } from './clock.js';
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
  return WORDS[state] ?? String(state);
}

/**
 * What goes with the word: "ends in 2 hours", "3 minutes ago", why it failed or
 * is paused although nobody asked for it.
 * soon is set when little time is left; title has the exact time.
 */
export function story(item, now) {
  if (item.state === 'running') {
    const left = secondsLeft(item.endAt, now);
    if (left === null) return { words: '', title: '', soon: false };
    return {
      words: `${item.autoPause ? 'pauses' : 'ends'} ${until(item.endAt, now)}`,
      title: `${item.autoPause ? 'Is paused' : 'Is deleted'} at ${moment(item.endAt)}`,
      soon: left < 60,
    };
  }
  const words = [item.state === 'paused' && ago(item.stateSince, now), item.reason];
  const title = [moment(item.stateSince), item.reason];
  return { words: words.filter(Boolean).join(': '), title: title.filter(Boolean).join(': '), soon: false };
}

/** A badge with a show(item, now) method: the state and what goes with it. */
export function badge() {
  const word = el('span', { class: 'word' });
  const words = el('span', { class: 'story' });
  const node = el('span', { class: 'badge' }, el('span', { class: 'dot' }), word, words);
  node.show = (item, now) => {
    node.dataset.state = isMoving(item.state) ? 'moving' : item.state;
    setText(word, stateWord(item.state));
    const told = story(item, now);
    setText(words, told.words);
    words.title = told.title;
    words.classList.toggle('soon', told.soon);
  };
  return node;
}
