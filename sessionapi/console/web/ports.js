// The ports of a sandbox: what listens, what panels may reach, and the panels themselves.

import { button, el, icon, setText } from './element.js';
import { Pane } from './pane.js';
import { listening, TABLES } from './sockets.js';

const PERIOD = 3000;
// Each look counts as use, which keeps a sandbox from being paused: nobody there, nobody looks.
const IDLE_MS = 5 * 60000;
const PANEL_SECONDS = 12 * 3600;

const NAMES = { 8080: 'Desktop viewer', 7681: 'Terminal', 9222: 'Browser control (CDP)' };
// The daemon and the browser's own port: the API shows neither.
const HIDDEN = [49983, 9223];

/** One port in the list. */
class Row {
  #words = el('span', { class: 'words' });
  #register;

  constructor(port, panel) {
    this.port = port;
    const name = NAMES[port] ?? '';
    this.#register = button('', 'Register', () => panel.register(this.port, !this.registered), { class: 'register' });
    this.node = el('li', { class: 'row' },
      el('span', { class: 'cell name' }, el('span', { class: 'number', text: port }), name && el('span', { class: 'dim', text: name })),
      el('span', { class: 'cell state' }, el('span', { class: 'dot' }), this.#words),
      el('span', { class: 'cell tools' },
        button('browser', 'Open', () => panel.open(this.port), { title: `Open port ${port} here`, class: 'open' }),
        button('external', '', () => panel.openTab(this.port), { class: 'quiet', label: `Open port ${port} in a new tab` }),
        this.#register));
  }

  show(registered, found) {
    this.registered = registered;
    this.node.dataset.listening = Boolean(found);
    setText(this.#words, `${found ? 'Listening' : 'Nobody listens'}${registered ? ', registered' : ''}`);
    this.#words.title = !found ? '' : found.everywhere ? 'On every address of the sandbox' : 'On the sandbox’s loopback, which panels reach, too';
    setText(this.#register.lastChild, registered ? 'Unregister' : 'Register');
    this.#register.title = registered ? `Take port ${this.port} back: its panels stop working` : `Let panels reach port ${this.port}`;
  }
}

/** The ports panel of the sandbox with this id. */
export class Ports {
  #app;
  #id;
  #state = '';
  #visible = false;
  #busy = false;
  #timer = 0;
  #active = performance.now();
  #rows = new Map();
  #pane = null;
  #shownPort = 0;

  #field = el('input', { type: 'text', id: 'port', inputmode: 'numeric', autocomplete: 'off', placeholder: '3000', maxlength: 5 });
  #submit = button('browser', 'Open panel', null, { type: 'submit', class: 'primary' });
  #problem = el('p', { class: 'problem', role: 'alert' });
  #list = el('ul', { class: 'rows', 'aria-label': 'Ports' });
  #note = el('p', { class: 'note dim' });
  #place = el('div', { class: 'frame', hidden: true });
  #stir = () => {
    const idle = performance.now() - this.#active > IDLE_MS;
    this.#active = performance.now();
    if (idle && this.#visible) this.#look();
  };
  #onvisibility = () => { if (!document.hidden && this.#visible) this.#look(); };

  constructor(app, id) {
    this.#app = app;
    this.#id = id;
    const form = el('form', { class: 'toolbar', novalidate: true },
      el('label', { for: 'port', text: 'Port' }), this.#field, this.#submit,
      el('span', { class: 'dim small', text: 'Opening a port registers it.' }));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const port = Number(this.#field.value.trim());
      if (!Number.isInteger(port) || port < 1 || port > 65535) return setText(this.#problem, 'A port is a number from 1 to 65535.');
      this.open(port);
    });
    this.node = el('div', { class: 'ports' },
      el('div', { class: 'side' }, form, this.#problem, this.#list, this.#note), this.#place);
    for (const type of ['pointermove', 'keydown']) document.addEventListener(type, this.#stir, { passive: true });
    document.addEventListener('visibilitychange', this.#onvisibility);
    this.#show([], new Map());
  }

  focus() { this.#field.focus(); }

  shown() {
    this.#visible = true;
    this.#look();
  }

  left() {
    this.#visible = false;
    clearTimeout(this.#timer);
  }

  update(state) {
    this.#state = state;
    this.#field.disabled = this.#submit.disabled = state !== 'running';
    if (state !== 'running') this.#show([], new Map());
    else if (this.#visible) this.#look();
  }

  close() {
    this.left();
    for (const type of ['pointermove', 'keydown']) document.removeEventListener(type, this.#stir);
    document.removeEventListener('visibilitychange', this.#onvisibility);
  }

  /** Registers a port, or takes it back. */
  async register(port, on) {
    await this.#do(() => (on ? this.#app.api.register(this.#id, port) : this.#app.api.unregister(this.#id, port)));
    this.#look();
  }

  /** Shows a port's panel beside the list. */
  async open(port) {
    const url = await this.#mint(port);
    if (!url) return;
    this.#closePane();
    this.#shownPort = port;
    this.#pane = new Pane(`Port ${port}`, 'plug', () => this.open(port), () => this.#closePane());
    this.#place.replaceChildren(this.#pane.node);
    this.#place.hidden = false;
    this.#pane.show(url);
    this.#look();
  }

  /** The panel's address became void: gets a new one for what is shown. */
  renew() {
    if (this.#pane) this.open(this.#shownPort);
  }

  /** Shows it in a new tab, which is opened at once: later the browser would take it for a pop-up. */
  async openTab(port) {
    const tab = window.open('', '_blank');
    if (!tab) return setText(this.#problem, 'The browser did not let a tab be opened.');
    tab.opener = null;
    const url = await this.#mint(port);
    if (url) tab.location.replace(url);
    else tab.close();
    this.#look();
  }

  async #mint(port) {
    let url = '';
    await this.#do(async () => {
      const panel = await this.#app.api.panel(this.#id, { port, path: '/', expiresInSeconds: PANEL_SECONDS });
      url = panel.url;
    });
    return url;
  }

  async #do(call) {
    setText(this.#problem, '');
    try {
      await call();
    } catch (err) {
      if (err.gone) this.#app.gone(this.#id);
      else setText(this.#problem, err.message);
    }
  }

  #closePane() {
    if (!this.#pane) return;
    const held = this.#place.contains(document.activeElement);
    this.#pane = null;
    this.#place.replaceChildren();
    this.#place.hidden = true;
    if (held) (this.#rows.get(this.#shownPort)?.node.querySelector('.open') ?? this.#field).focus();
  }

  /** Reads what listens and what is registered, and again while somebody looks. */
  async #look() {
    clearTimeout(this.#timer);
    if (!this.#visible || document.hidden || this.#busy || this.#state !== 'running') return;
    this.#busy = true;
    try {
      const [registered, ...tables] = await Promise.all([
        this.#app.api.ports(this.#id), ...TABLES.map((table) => this.#app.api.text(this.#id, table).catch(() => ''))]);
      if (this.#state === 'running') this.#show(registered.map(({ port }) => port), byPort(tables.flatMap(listening)));
    } catch (err) {
      if (err.gone) this.#app.gone(this.#id);
      else if (!err.passing) setText(this.#problem, err.message);
    } finally {
      this.#busy = false;
    }
    if (this.#visible && performance.now() - this.#active < IDLE_MS) this.#timer = setTimeout(() => this.#look(), PERIOD);
  }

  #show(registered, found) {
    const ports = [...new Set([...registered, ...found.keys()])].filter((port) => !HIDDEN.includes(port)).sort((a, b) => a - b);
    for (const [port, row] of this.#rows) {
      if (ports.includes(port)) continue;
      row.node.remove();
      this.#rows.delete(port);
    }
    ports.forEach((port, n) => {
      let row = this.#rows.get(port);
      if (!row) this.#rows.set(port, row = new Row(port, this));
      row.show(registered.includes(port), found.get(port));
      if (this.#list.children[n] !== row.node) this.#list.insertBefore(row.node, this.#list.children[n] ?? null);
    });
    this.#list.hidden = !ports.length;
    const able = this.#state === 'running';
    setText(this.#note, ports.length ? '' : able
      ? 'Nothing listens yet. A server that is started in the sandbox appears here by itself.'
      : 'The sandbox is not running. Its ports can be seen once it is.');
  }
}

function byPort(sockets) {
  const out = new Map();
  for (const { port, everywhere } of sockets) {
    out.set(port, { everywhere: everywhere || Boolean(out.get(port)?.everywhere) });
  }
  return out;
}
