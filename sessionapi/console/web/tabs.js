// Tabs, with the arrow keys. Panels stay in the page: a frame that leaves it is lost.

import { el } from './element.js';

/** Tabs of [name, words, panel]; a panel has a node, and may have shown(), left() and focus(). */
export function tabList(entries) {
  let chosen = false; // by the person; no suggestion undoes that
  let current = null;
  const tabs = entries.map(([name, words, panel]) => {
    panel.node.id = `panel-${name}`;
    panel.node.setAttribute('role', 'tabpanel');
    panel.node.setAttribute('aria-labelledby', `tab-${name}`);
    return el('button', {
      type: 'button', role: 'tab', id: `tab-${name}`, 'aria-controls': panel.node.id, text: words,
      on: { click: () => choose(name, true) },
    });
  });
  function choose(name, focus) {
    chosen = true;
    show(name, focus);
  }
  function show(name, focus) {
    const before = current;
    entries.forEach(([one, , panel], n) => {
      const on = one === name;
      tabs[n].setAttribute('aria-selected', String(on));
      tabs[n].tabIndex = on ? 0 : -1;
      panel.node.hidden = !on;
      if (on) current = panel;
    });
    if (before !== current) {
      before?.left?.();
      current.shown?.();
    }
    if (focus) current.focus?.();
  }
  const node = el('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Panels' }, tabs);
  node.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const to = (tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length;
    choose(entries[to][0], false);
    tabs[to].focus();
  });
  show(entries[0][0], false);
  const suggest = (name) => { if (!chosen) show(name, false); };
  return { node, panels: entries.map(([, , panel]) => panel.node), choose, suggest };
}
