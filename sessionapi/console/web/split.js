// Two panes with a divider that pointer and keyboard move.

import { el } from './element.js';

const STEP = 2;
const LEAST = 20;
const MOST = 80;
const START = 62;

/**
 * Puts two nodes side by side; style.css stacks them where the page is narrow.
 * The result's show(n, on) takes one away or brings it back.
 */
export function split(first, second, label) {
  const bar = el('div', {
    class: 'divider', role: 'separator', tabindex: '0', 'aria-orientation': 'vertical', 'aria-label': label,
    'aria-valuemin': LEAST, 'aria-valuemax': MOST,
  });
  const node = el('div', { class: 'split' }, first, bar, second);
  let share = START;

  function set(percent) {
    share = Math.min(MOST, Math.max(LEAST, percent));
    node.style.setProperty('--share', `${share}fr`);
    node.style.setProperty('--rest', `${100 - share}fr`);
    bar.setAttribute('aria-valuenow', String(Math.round(share)));
  }

  bar.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    // The frames would swallow the pointer: style.css makes them deaf meanwhile.
    bar.setPointerCapture(event.pointerId);
    node.classList.add('dragging');
  });
  bar.addEventListener('pointermove', (event) => {
    if (!node.classList.contains('dragging')) return;
    const box = node.getBoundingClientRect();
    set((event.clientX - box.left) / box.width * 100);
  });
  bar.addEventListener('lostpointercapture', () => node.classList.remove('dragging'));
  bar.addEventListener('dblclick', () => set(START));
  bar.addEventListener('keydown', (event) => {
    const to = { ArrowLeft: share - STEP, ArrowRight: share + STEP, Home: LEAST, End: MOST, Enter: START }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    set(to);
  });
  node.show = (n, on) => {
    [first, second][n].hidden = !on;
    bar.hidden = first.hidden || second.hidden;
    node.classList.toggle('single', bar.hidden);
  };
  set(START);
  return node;
}
