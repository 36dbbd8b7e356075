// The catalog: what the API said of the caller's sandboxes, kept fresh while
// the page is looked at.

import { isMoving, made } from './state.js';
import { backOff } from './wait.js';

const PERIOD = 3000;
const PERIOD_MOVING = 1000;
const PERIOD_FAILING = 15000;
const PERIOD_FOLLOWING = 30000;
const MOST_PAGES = 5;

/**
 * Catalog follows what changes, and reads the list: at first, now and then, and
 * often while it cannot follow. It dispatches "change" after each of these.
 * It reads the list only: a call about one sandbox would count as use of it
 * and keep it from being paused when idle.
 */
export class Catalog extends EventTarget {
  /** The sandboxes, newest first; null before the first answer. */
  items = null;
  /** Why the last try failed, or null. */
  failure = null;
  /** There are more sandboxes than were read. */
  cut = false;

  /** Changes are told as they happen. */
  get live() { return this.#following; }

  #api;
  #timer = 0;
  #abort = null;
  #failures = 0;
  #running = false;
  #stream = null;
  #following = false;
  #onvisibility = () => (document.hidden ? this.#rest() : this.refresh());

  constructor(api) {
    super();
    this.#api = api;
  }

  start() {
    this.#running = true;
    document.addEventListener('visibilitychange', this.#onvisibility);
    this.#follow();
    this.refresh();
  }

  stop() {
    this.#running = false;
    this.#stream?.abort();
    document.removeEventListener('visibilitychange', this.#onvisibility);
    this.#rest();
  }

  find(id) {
    return this.items?.find((item) => item.sandboxID === id) ?? null;
  }

  /** Puts in what another call said of a sandbox, ahead of the next answer. */
  put(item) {
    const known = this.find(item.sandboxID);
    const others = (this.items ?? []).filter((other) => other !== known);
    this.#show([{ ...known, ...item }, ...others]);
  }

  /** Takes out a sandbox that is gone. */
  drop(id) {
    if (this.find(id)) this.#show(this.items.filter((item) => item.sandboxID !== id));
  }

  /** Asks now. An answer that is still on its way is older and thrown away. */
  async refresh() {
    this.#rest();
    if (!this.#running) return;
    const abort = new AbortController();
    this.#abort = abort;
    try {
      const items = [];
      let next = '';
      for (let n = 0; n < MOST_PAGES && (n === 0 || next); n++) {
        const page = await this.#api.page(next, abort.signal);
        items.push(...page.items);
        next = page.next;
      }
      if (abort.signal.aborted) return;
      this.failure = null;
      this.#failures = 0;
      this.cut = Boolean(next);
      this.#show(items);
    } catch (err) {
      if (abort.signal.aborted) return;
      this.failure = err;
      this.#failures++;
      this.dispatchEvent(new Event('change'));
    }
    if (this.#running && !document.hidden) this.#timer = setTimeout(() => this.refresh(), this.#period());
  }

  /** Follows as long as it runs and the API lets it. */
  async #follow() {
    const { signal } = this.#stream = new AbortController();
    for (let failures = 0; !signal.aborted; failures++) {
      let failure = null;
      try {
        for await (const [event, data] of await this.#api.follow(signal)) {
          failures = 0;
          this.#told(event, data);
        }
      } catch (err) {
        if (err.status === 404 || err.status === 401) return; // an older API; a key that is gone
        failure = err;
      }
      if (this.#following) this.#lost();
      await backOff(failures, failure, signal);
    }
  }

  // The list is read often until the stream is back, which is when what was missed is read.
  #lost() {
    this.#following = false;
    if (this.#running && !document.hidden) this.refresh();
  }

  #told(event, data) {
    if (event === 'ready') {
      this.#following = true;
      if (this.items && !document.hidden) this.refresh(); // what changed before
    } else if (this.items) {
      if (event === 'gone') this.drop(data.sandboxID);
      else this.put(data);
    }
  }

  #period() {
    if (this.failure) {
      const backoff = PERIOD * 2 ** Math.min(this.#failures - 1, 3);
      return Math.max(Math.min(backoff, PERIOD_FAILING), (this.failure.retryAfter ?? 0) * 1000);
    }
    if (this.#following) return PERIOD_FOLLOWING;
    return this.items.some((item) => isMoving(item.state)) ? PERIOD_MOVING : PERIOD;
  }

  #rest() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#abort = null;
  }

  #show(items) {
    const since = (item) => Date.parse(made(item) ?? '') || 0;
    this.items = items.sort((a, b) => since(b) - since(a) || a.sandboxID.localeCompare(b.sandboxID));
    this.dispatchEvent(new Event('change'));
  }
}
