// The list of sandboxes.

import { allowed, extend, pause, remove, resume } from './actions.js';
import { ago, moment } from './clock.js';
import { createSandbox } from './create.js';
import { button, copyButton, el, icon, setText } from './element.js';
import { printable } from './names.js';
import { badge, made } from './state.js';

/** One sandbox in the list. It is kept while the list changes around it, so the focus stays. */
class Row {
  #badge = badge();
  #id = el('a', { class: 'mono id' });
  #note = el('span', { class: 'note' });
  #template = el('span');
  #age = el('span');
  #item = null;
  #tools;

  constructor(app) {
    const tool = (name, shape, words, act, props) => [name, button(shape, '', act, { class: 'quiet', label: words, ...props })];
    this.#tools = [
      tool('pause', 'pause', 'Pause', () => pause(app, this.#item.sandboxID)),
      tool('resume', 'play', 'Resume', () => resume(app, this.#item.sandboxID)),
      tool('extend', 'clock', 'Time left', () => extend(app, this.#item)),
      tool('delete', 'trash', 'Delete', () => remove(app, this.#item.sandboxID), { class: 'quiet danger' }),
    ];
    this.node = el('li', { class: 'row' },
      el('span', { class: 'cell name' }, this.#id, this.#note),
      el('span', { class: 'cell state' }, this.#badge),
      el('span', { class: 'cell template' }, this.#template),
      el('span', { class: 'cell age' }, this.#age),
      el('span', { class: 'cell tools' }, this.#tools.map(([, node]) => node)));
  }

  show(item, now) {
    this.#item = item;
    this.#id.href = `#/sandboxes/${encodeURIComponent(item.sandboxID)}`;
    setText(this.#id, item.sandboxID);
    setText(this.#note, labels(item.metadata));
    this.#id.title = this.#note.textContent; // the link covers the row
    this.#badge.show(item, now);
    setText(this.#template, printable(item.alias || item.templateID));
    setText(this.#age, ago(made(item), now));
    this.#age.title = moment(made(item));
    for (const [name, node] of this.#tools) {
      const held = document.activeElement === node;
      node.hidden = !allowed(name, item.state);
      if (held && node.hidden) this.#id.focus();
    }
  }
}

/** Metadata as "key=value, …"; the name that was given here stands alone. */
export function labels(metadata) {
  const { name, ...rest } = metadata ?? {};
  const pairs = Object.entries(rest).map(([key, value]) => `${key}=${value}`);
  return printable([name, ...pairs].filter(Boolean).join(', '));
}

function emptyState(create) {
  const text = `curl ${location.origin}/sandboxes \\\n  -H "X-API-Key: $CUBEPOD_API_KEY" \\\n`
    + '  -H "Content-Type: application/json" \\\n  -d \'{"templateID":"desktop","timeout":3600}\'';
  return el('div', { class: 'empty' },
    icon('cube'),
    el('h2', { text: 'No sandboxes' }),
    el('p', { class: 'dim', text: 'Create one here, or from a program:' }),
    el('div', { class: 'snippet' }, el('pre', { text }), copyButton('Copy the command', () => text)),
    button('plus', 'New sandbox', create, { class: 'primary' }));
}

/** The view of all sandboxes. */
export function listView(app) {
  const rows = new Map();
  const list = el('ul', { class: 'rows' });
  const head = el('div', { class: 'row head', 'aria-hidden': 'true' },
    ['Sandbox', 'State', 'Template', 'Created', ''].map((text) => el('span', { class: 'cell', text })));
  const count = el('span', { class: 'dim', role: 'status' });
  const loading = el('div', { class: 'loading', role: 'status', text: 'Loading sandboxes' });
  const table = el('div', { class: 'table' }, head, list);
  const create = async () => {
    const created = await createSandbox(app);
    if (created) app.open(created.sandboxID);
  };
  const empty = emptyState(create);
  const add = button('plus', 'New sandbox', create, { class: 'primary' });

  function update() {
    const { items, failure, cut } = app.catalog;
    const now = app.api.now();
    loading.hidden = Boolean(items);
    table.hidden = !items?.length;
    empty.hidden = !items || items.length > 0;
    add.hidden = !items || !empty.hidden;
    table.classList.toggle('stale', Boolean(failure));
    if (!items) return;
    setText(count, items.length ? summary(items, cut) : '');
    for (const [id, row] of rows) {
      if (app.catalog.find(id)) continue;
      row.node.remove();
      rows.delete(id);
    }
    items.forEach((item, n) => {
      let row = rows.get(item.sandboxID);
      if (!row) rows.set(item.sandboxID, row = new Row(app));
      row.show(item, now);
      if (list.children[n] !== row.node) list.insertBefore(row.node, list.children[n] ?? null);
    });
  }

  const node = el('section', { class: 'page' },
    el('div', { class: 'heading' }, el('div', {}, el('h1', { text: 'Sandboxes' }), count), add),
    loading, table, empty);
  return { node, title: 'Sandboxes', update, tick: update, close() {} };
}

function summary(items, cut) {
  const running = items.filter((item) => item.state === 'running').length;
  return `${cut ? 'first ' : ''}${items.length} · ${running} running`;
}
