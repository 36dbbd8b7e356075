// One sandbox: its facts, what can be done with it, and its panels.

import { allowed, extend, pause, remove, resume } from './actions.js';
import { ago, moment } from './clock.js';
import { Commands } from './commands.js';
import { Desktop } from './desktop.js';
import { button, copyButton, el, icon, setText } from './element.js';
import { Files } from './files.js';
import { labels } from './list.js';
import { printable } from './names.js';
import { Ports } from './ports.js';
import { Share } from './share.js';
import { badge, made, stateWord } from './state.js';
import { tabList } from './tabs.js';

/** The view of the sandbox with this id. */
export function sandboxView(app, id) {
  const state = badge();
  const facts = el('dl', { class: 'facts' });
  const announce = el('span', { class: 'hidden', role: 'status' });
  const tools = {
    pause: button('pause', 'Pause', () => act(pause)),
    resume: button('play', 'Resume', () => act(resume), { class: 'primary' }),
    extend: button('clock', 'Time', () => extend(app, app.catalog.find(id)), { title: 'Set the time left' }),
    delete: button('trash', 'Delete', () => remove(app, id), { class: 'quiet danger' }),
  };
  const desktop = new Desktop(app, id);
  const commands = new Commands(app, id);
  const ports = new Ports(app, id);
  const share = new Share(app, id, () => { desktop.renew(); ports.renew(); });
  const panels = [desktop, commands, new Files(app, id), ports, share];
  const words = ['Desktop', 'Commands', 'Files', 'Ports', 'Share'];
  const tabs = tabList(panels.map((panel, n) => [words[n].toLowerCase(), words[n], panel]));
  let shown = '';
  let missing = false;
  for (const tool of Object.values(tools)) tool.hidden = true; // until it is known what makes sense

  /** Pauses or resumes, and keeps the focus where the other button appears. */
  async function act(move) {
    const held = document.activeElement;
    await move(app, id);
    const next = [tools.resume, tools.pause].find((one) => !one.hidden);
    if ([tools.pause, tools.resume].includes(held) && document.activeElement === document.body) next?.focus();
  }

  /** The list does not have it: asks for it by name, once per answer. */
  async function look() {
    if (missing) return;
    missing = true;
    try {
      app.catalog.put(await app.api.get(id));
    } catch (err) {
      if (err.status === 404 || err.gone) app.gone(id);
    } finally {
      missing = false;
    }
  }

  function update() {
    const item = app.catalog.find(id);
    if (!item) {
      if (app.catalog.items && !app.catalog.failure) look();
      return;
    }
    const now = app.api.now();
    state.show(item, now);
    showFacts(facts, item, now);
    if (shown === item.state) return;
    const first = !shown;
    shown = item.state;
    for (const [name, node] of Object.entries(tools)) {
      // A button that was pressed stays, so that the focus does, until the state is final.
      node.disabled = !allowed(name, shown);
      node.hidden = node.disabled && !(name === 'delete' || name === 'pause' && shown === 'pausing' || name === 'resume' && shown === 'resuming');
    }
    if (first) tabs.suggest(item.templateID === 'base' && !app.opened.has(id) ? 'commands' : 'desktop');
    else setText(announce, `The sandbox is now: ${stateWord(shown)}.`);
    for (const panel of panels) panel.update(shown);
    if (first && app.opened.has(id) && shown === 'running') desktop.start();
  }

  const node = el('section', { class: 'sandbox' },
    el('div', { class: 'top' },
      el('a', { class: 'button quiet square', href: '#/', title: 'All sandboxes', 'aria-label': 'All sandboxes' }, icon('back')),
      el('h1', { class: 'mono', text: id }), copyButton('Copy the sandbox id', () => id), state, facts, announce,
      el('span', { class: 'tools' }, Object.values(tools))),
    tabs.node,
    el('div', { class: 'panels' }, tabs.panels));
  return {
    node,
    title: id,
    update,
    tick() {
      update();
      for (const panel of panels) panel.tick?.();
    },
    close() { for (const panel of panels) panel.close?.(); },
  };
}

function showFacts(list, item, now) {
  const facts = [
    ['Template', printable(item.alias || item.templateID), printable(item.alias || item.templateID)],
    ['Created', ago(made(item), now), moment(made(item))],
    ['Labels', labels(item.metadata), labels(item.metadata)],
  ].filter(([, value]) => value);
  if (list.dataset.shape !== facts.map(([name]) => name).join()) {
    list.dataset.shape = facts.map(([name]) => name).join();
    list.replaceChildren(...facts.map(([name]) => el('div', {}, el('dt', { text: name }), el('dd'))));
  }
  facts.forEach(([, value, title], n) => {
    const dd = list.children[n].lastChild;
    setText(dd, value);
    dd.title = title;
  });
}
