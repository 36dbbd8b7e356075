// The desktop of a sandbox: its browser and its terminal, side by side.

import { button, el, icon, progress } from './element.js';
import { Pane } from './pane.js';
import { split } from './split.js';

// A timer cannot be set for longer than this.
const LONGEST = 2 ** 31 - 1;

const NAMES = [['Browser', 'browser'], ['Terminal', 'terminal']];

/** The desktop panel of the sandbox with this id. */
export class Desktop {
  #app;
  #id;
  #state = '';
  #panes = null;
  #split = null;
  #urls = [];
  #open = [true, true];
  #bar = null;
  #abort = null;
  #expiry = 0;

  constructor(app, id) {
    this.#app = app;
    this.#id = id;
    this.node = el('div', { class: 'desktop' });
    this.#invite();
  }

  /** Follows the sandbox's state. What was open comes back after a resume. */
  update(state) {
    if (state === this.#state) return;
    const before = this.#state;
    this.#state = state;
    if (!this.#panes && !this.#abort) this.#invite();
    else if (this.#panes && state === 'running' && ['paused', 'resuming'].includes(before)) this.start();
  }

  tick() { this.#bar?.tick(); }

  close() {
    this.#abort?.abort();
    clearTimeout(this.#expiry);
    document.removeEventListener('visibilitychange', this.#renew);
  }

  /** Starts the desktop, or finds it started, and shows it. */
  async start() {
    this.#abort?.abort();
    const abort = this.#abort = new AbortController();
    this.#app.opened.add(this.#id);
    if (!this.#panes) {
      this.#bar = progress(this.#state === 'paused' ? 'Resuming the sandbox and its desktop' : 'Starting the desktop');
      this.node.replaceChildren(el('div', { class: 'stage' }, this.#bar));
    }
    try {
      const desktop = await this.#app.api.startDesktop(this.#id, abort.signal);
      if (abort.signal.aborted) return;
      this.#abort = null;
      this.#show(desktop);
    } catch (err) {
      if (abort.signal.aborted) return;
      this.#abort = null;
      this.#app.opened.delete(this.#id);
      if (err.gone) this.#app.gone(this.#id);
      else this.#fail(err);
    } finally {
      this.#bar = null;
    }
    this.#app.catalog.refresh();
  }

  #show(desktop) {
    this.#urls = [desktop.desktopUrl, desktop.terminalUrl];
    if (!this.#panes) {
      const again = () => this.start();
      this.#panes = NAMES.map(([name, shape], n) => new Pane(name, shape, again, () => this.#toggle(n, false)));
      this.#split = split(this.#panes[0].node, this.#panes[1].node, 'Width of the browser');
      this.node.replaceChildren(this.#split);
      this.#arrange();
    }
    this.#panes.forEach((pane, n) => { if (this.#open[n]) pane.show(this.#urls[n]); });
    clearTimeout(this.#expiry);
    const left = Date.parse(desktop.expiresAt) - this.#app.api.now();
    if (left > 0) this.#expiry = setTimeout(this.#renew, Math.min(left, LONGEST));
  }

  /** Opens or closes one of the two; what is closed is not kept running behind the other. */
  #toggle(n, on) {
    this.#open[n] = on;
    if (on) this.#panes[n].show(this.#urls[n]);
    else this.#panes[n].clear();
    this.#arrange();
    this.#panes[on ? n : 1 - n].focus();
  }

  #arrange() {
    const both = this.#open.every(Boolean);
    this.#panes.forEach((pane, n) => {
      this.#split.show(n, this.#open[n]);
      pane.closable = both;
      const [other, shape] = NAMES[1 - n];
      pane.offer(both ? null : button(shape, `Show ${other.toLowerCase()}`, () => this.#toggle(1 - n, true)));
    });
  }

  /** The panels' addresses became void: gets new ones for what is shown. */
  renew() {
    if (this.#panes && this.#state === 'running') this.start();
  }

  // The panels' streams end with their tokens. Nobody looking, nothing is done:
  // starting the desktop would wake a paused sandbox and count as use.
  #renew = () => {
    document.removeEventListener('visibilitychange', this.#renew);
    if (document.hidden) document.addEventListener('visibilitychange', this.#renew);
    else if (this.#state === 'running') this.start();
  };

  #invite() {
    if (this.#state === 'paused') {
      this.#stage('browser', 'The sandbox is paused', 'Its files and logins are kept. Opening the desktop resumes it.',
        button('', 'Resume and open desktop', () => this.start(), { class: 'primary' }));
    } else if (this.#state === 'running') {
      this.#stage('browser', 'The desktop is not open',
        'A browser and a terminal in the sandbox. Nothing graphical runs until it is opened.',
        button('', 'Open desktop', () => this.start(), { class: 'primary' }));
    } else {
      this.#stage('browser', 'The sandbox is not running', 'The desktop can be opened once it is.', null);
    }
  }

  #fail(err) {
    this.#panes = null;
    this.#stage('warning', 'The desktop did not start', err.message,
      err.code === 'desktop_not_installed' || err.code === 'desktop_disabled' ? null
        : button('', 'Try again', () => this.start()));
    this.node.querySelector('.stage').setAttribute('role', 'alert');
  }

  #stage(shape, title, text, action) {
    const held = this.node.contains(document.activeElement);
    this.node.replaceChildren(el('div', { class: 'stage' },
      icon(shape), el('h2', { text: title }), el('p', { class: 'dim', text }), action));
    if (held) action?.focus();
  }
}
