// The status line: whether the page is in touch with the API, said quietly.

import { el, setText } from './element.js';

// A call that fails once and then succeeds is nobody's business.
const PATIENCE_MS = 600;

/** The line in the page's bar. watch() gives it the calls and the catalog to speak of. */
export class StatusLine {
  #words = el('span');
  #timer = 0;
  #stop = null;

  constructor() {
    this.node = el('p', { class: 'line', role: 'status' }, el('span', { class: 'dot' }), this.#words);
    this.node.hidden = true;
  }

  watch(api, catalog) {
    this.leave();
    const abort = this.#stop = new AbortController();
    const look = () => this.#look(catalog.failure ?? api.waiting, catalog);
    api.addEventListener('change', look, { signal: abort.signal });
    catalog.addEventListener('change', look, { signal: abort.signal });
  }

  /** Says no more. */
  leave() {
    this.#stop?.abort();
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.node.hidden = true;
  }

  #look(failure, catalog) {
    if (!failure) {
      clearTimeout(this.#timer);
      this.#timer = 0;
      if (catalog.items) this.#say('fine', catalog.live ? 'Live' : 'Connected');
    } else {
      this.failure = failure;
      this.#timer ||= setTimeout(() => this.#say('away', `${this.failure.message} Trying again.`), PATIENCE_MS);
      if (this.node.dataset.health === 'away') this.#say('away', `${failure.message} Trying again.`);
    }
  }

  #say(health, words) {
    this.node.hidden = false;
    this.node.dataset.health = health;
    this.node.title = health === 'fine' ? 'What is shown is kept up to date' : words;
    setText(this.#words, words);
  }
}
