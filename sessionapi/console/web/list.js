// The list of sandboxes.

import { age, duration, moment, secondsLeft } from './clock.js';
import { button, copyButton, el, icon, setText } from './element.js';
import { createSandbox } from './create.js';
import { badge, made } from './state.js';

/** One sandbox in the list. It is kept while the list changes around it, so the focus stays. */
class Row {
  #badge = badge('');
  #id = el('a', { class: 'mono id' });
  #note = el('span', { class: 'note' });
  #template = el('span');
  #age = el('span', { class: 'number' });
  #left = el('span', { class: 'number' });

  constructor() {
    this.node = el('li', { class: 'row' },
      el('span', { class: 'cell name' }, this.#id, this.#note),
      el('span', { class: 'cell state' }, this.#badge),
      el('span', { class: 'cell template', 'data-label': 'Template' }, this.#template),
      el('span', { class: 'cell age', 'data-label': 'Age' }, this.#age),
      el('span', { class: 'cell left', 'data-label': 'Time left' }, this.#left));
  }

  show(item, now) {
    this.#id.href = `#/sandboxes/${encodeURIComponent(item.sandboxID)}`;
    setText(this.#id, item.sandboxID);
    setText(this.#note, (item.state === 'failed' && item.reason) || labels(item.metadata));
    this.#badge.show(item.state);
    setText(this.#template, item.alias || item.templateID);
    setText(this.#age, age(made(item), now) || '–');
    this.#age.title = moment(made(item));
    // Only a running sandbox's time runs.
    const left = item.state === 'running' ? secondsLeft(item.endAt, now) : null;
    setText(this.#left, left === null ? '–' : duration(left));
    this.#left.title = left === null ? '' : moment(item.endAt);
    this.#left.classList.toggle('soon', left !== null && left < 60);
    this.node.classList.toggle('endless', left === null);
  }
}

/** Metadata as "key=value, …". */
export function labels(metadata) {
  return Object.entries(metadata ?? {}).map(([key, value]) => `${key}=${value}`).join(', ');
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
    ['Sandbox', 'State', 'Template', 'Age', 'Time left'].map((text) => el('span', { class: 'cell', text })));
  const count = el('span', { class: 'dim', role: 'status' });
  const trouble = el('p', { class: 'banner', role: 'alert' });
  const loading = el('div', { class: 'loading', role: 'status', text: 'Loading sandboxes' });
  const table = el('div', { class: 'table' }, head, list);
  const create = async () => {
    const made = await createSandbox(app);
    if (made) app.open(made.sandboxID);
  };
  const empty = emptyState(create);
  const add = button('plus', 'New sandbox', create, { class: 'primary' });

  function update() {
    const { items, failure, cut } = app.catalog;
    const now = app.api.now();
    setText(trouble, failure ? `${failure.message} Trying again.` : '');
    trouble.hidden = !failure;
    loading.hidden = Boolean(items || failure);
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
      if (!row) rows.set(item.sandboxID, row = new Row());
      row.show(item, now);
      if (list.children[n] !== row.node) list.insertBefore(row.node, list.children[n] ?? null);
    });
  }

  const node = el('section', { class: 'page' },
    el('div', { class: 'heading' }, el('div', {}, el('h1', { text: 'Sandboxes' }), count), add),
    trouble, loading, table, empty);
  return { node, title: 'Sandboxes', update, tick: update, close() {} };
}

function summary(items, cut) {
  const running = items.filter((item) => item.state === 'running').length;
  return `${cut ? 'first ' : ''}${items.length} · ${running} running`;
}
