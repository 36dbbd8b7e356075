// One sandbox: its facts, what can be done with it, and its two panels.

import { age, duration, moment, secondsLeft } from './clock.js';
import { button, copyButton, el, icon, setText } from './element.js';
import { Commands } from './commands.js';
import { Desktop } from './desktop.js';
import { openDialog } from './dialog.js';
import { labels } from './list.js';
import { complain, say, settle } from './notice.js';
import { badge, made, stateWord } from './state.js';

/** The view of the sandbox with this id. */
export function sandboxView(app, id) {
  const state = badge('');
  const facts = el('dl', { class: 'facts' });
  const trouble = el('p', { class: 'banner', role: 'alert', hidden: true });
  const announce = el('span', { class: 'hidden', role: 'status' });
  const pause = button('pause', 'Pause', () => act('pausing', () => app.api.pause(id)));
  const resume = button('play', 'Resume', () => act('resuming', () => app.api.resume(id)), { class: 'primary' });
  const remove = button('trash', 'Delete', askRemove, { class: 'quiet danger' });
  const desktop = new Desktop(app, id);
  const commands = new Commands(app, id);
  const tabs = tabList([['desktop', 'Desktop', desktop], ['commands', 'Commands', commands]]);
  let shown = '';
  let missing = false;

  /** Does something with the sandbox, and says so at once. */
  async function act(meanwhile, call) {
    const held = document.activeElement;
    settle();
    app.catalog.put({ sandboxID: id, state: meanwhile });
    try {
      await call();
    } catch (err) {
      if (err.gone) return app.gone(id);
      complain(err.message);
    }
    await app.catalog.refresh();
    const next = [resume, pause].find((one) => !one.hidden);
    if ((held === pause || held === resume) && document.activeElement === document.body) next?.focus();
  }

  async function askRemove() {
    const done = await openDialog({
      title: 'Delete this sandbox?',
      body: [el('p', {}, 'Its files, logins and logs are removed, and its panels stop working. This cannot be undone.'),
        el('p', { class: 'mono dim', text: id })],
      verb: 'Delete',
      working: 'Deleting',
      danger: true,
      submit: async () => {
        try { await app.api.remove(id); } catch (err) { if (!err.gone) throw err; }
      },
    });
    if (!done) return;
    app.leave(id);
    say('The sandbox was deleted.');
    app.catalog.refresh();
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
    const { failure } = app.catalog;
    setText(trouble, failure ? `${failure.message} Trying again.` : '');
    trouble.hidden = !failure;
    const item = app.catalog.find(id);
    if (!item) {
      if (app.catalog.items && !failure) look();
      return;
    }
    if (shown !== item.state) {
      if (shown) setText(announce, `The sandbox is now: ${stateWord(item.state)}.`);
      if (!shown) tabs.suggest(item.templateID === 'base' && !app.opened.has(id) ? 'commands' : 'desktop');
      const first = !shown;
      shown = item.state;
      state.show(shown);
      desktop.update(shown);
      commands.update(shown);
      if (first && app.opened.has(id) && shown === 'running') desktop.start();
    }
    pause.hidden = shown !== 'running' && shown !== 'pausing';
    pause.disabled = shown === 'pausing';
    resume.hidden = !['paused', 'resuming'].includes(shown);
    resume.disabled = shown === 'resuming';
    remove.disabled = shown === 'deleting';
    showFacts(facts, item, app.api.now());
  }

  const node = el('section', { class: 'sandbox' },
    el('div', { class: 'top' },
      el('a', { class: 'button quiet square', href: '#/', title: 'All sandboxes', 'aria-label': 'All sandboxes' }, icon('back')),
      el('h1', { class: 'mono', text: id }), copyButton('Copy the sandbox id', () => id), state, facts, announce,
      el('span', { class: 'tools' }, pause, resume, remove)),
    trouble, tabs.node,
    el('div', { class: 'panels' }, tabs.panels));
  return {
    node,
    title: id,
    update,
    tick() { update(); desktop.tick(); commands.tick(); },
    close() { desktop.close(); commands.close(); },
  };
}

function showFacts(list, item, now) {
  const left = item.state === 'running' ? secondsLeft(item.endAt, now) : null;
  const facts = [
    ['Template', item.alias || item.templateID, ''],
    ['Age', age(made(item), now), moment(made(item))],
    ['Time left', left === null ? '' : duration(left), moment(item.endAt)],
    ['Reason', item.state === 'failed' ? item.reason : '', ''],
    ['Metadata', labels(item.metadata), ''],
  ].filter(([, value]) => value);
  if (list.dataset.shape !== facts.map(([name]) => name).join()) {
    list.dataset.shape = facts.map(([name]) => name).join();
    list.replaceChildren(...facts.map(([name]) => el('div', {}, el('dt', { text: name }), el('dd'))));
  }
  facts.forEach(([name, value, title], n) => {
    const dd = list.children[n].lastChild;
    setText(dd, value);
    dd.title = title;
    if (name === 'Time left') dd.className = left < 60 ? 'number soon' : 'number';
  });
}

/** Tabs, with the arrow keys. Panels stay in the page: a frame that leaves it is lost. */
function tabList(entries) {
  let chosen = false; // by the person; no suggestion undoes that
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
    entries.forEach(([one, , panel], n) => {
      const on = one === name;
      tabs[n].setAttribute('aria-selected', String(on));
      tabs[n].tabIndex = on ? 0 : -1;
      panel.node.hidden = !on;
      if (on) panel.shown?.();
      if (on && focus) panel.focus?.();
    });
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
