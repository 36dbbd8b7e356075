// One call of the session API: its key, its clock, and what is tried again.

import { failureOf, Failure, unreachable } from './failure.js';
import { backOff } from './wait.js';

const TRIES = 5;

/**
 * Caller makes calls. One that may be repeated is, with growing pauses, while
 * the API is away; "change" says that `waiting` became another failure, or null.
 */
export class Caller extends EventTarget {
  #key;
  #denied;
  #skew = 0;
  #waits = new Map(); // calls between two tries: their failures

  /** denied is told when the key is not accepted. */
  constructor(key, denied) {
    super();
    this.#key = key;
    this.#denied = denied;
  }

  /** Why some call is being tried again, or null. */
  get waiting() {
    return this.#waits.values().next().value ?? null;
  }

  /** The server's time in milliseconds. Sandboxes end by its clock. */
  now() {
    return Date.now() + this.#skew;
  }

  /** What a request of another kind than fetch needs: XMLHttpRequest tells of an upload's progress. */
  get headers() {
    return { 'X-API-Key': this.#key };
  }

  /** The key was not accepted by such a request. */
  refused(failure) {
    this.#denied(failure);
  }

  /** Forgets the key: calls that are still tried again fail. */
  forget() {
    this.#key = '';
  }

  /** Makes a call and gives the response. once: it must not be repeated. */
  async send(method, path, { body, headers, signal, once = false } = {}) {
    const call = {};
    try {
      for (let n = 0; ; n++) {
        try {
          return await this.#try(method, path, body, headers, signal);
        } catch (err) {
          if (once || signal?.aborted || !err.passing || n === TRIES - 1) throw err;
          this.#wait(call, err);
          await backOff(n, err, signal);
        }
      }
    } finally {
      this.#wait(call, null);
    }
  }

  /** Makes a call and gives the JSON of its answer; null for an empty one. */
  async json(method, path, options) {
    const response = await this.send(method, path, options);
    if (response.status === 204) return null;
    try {
      return await response.json();
    } catch (err) {
      if (options?.signal?.aborted) throw err;
      throw new Failure(response.status, 'unexpected_response', 'The API’s answer broke off.');
    }
  }

  async #try(method, path, body, extra, signal) {
    const headers = { ...this.headers, Accept: 'application/json', ...extra };
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    let response;
    try {
      response = await fetch(path, {
        method, headers, signal, cache: 'no-store', credentials: 'omit', redirect: 'error',
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (err) {
      if (signal?.aborted) throw err;
      throw unreachable();
    }
    const date = Date.parse(response.headers.get('Date') ?? '');
    if (date) {
      // The header counts whole seconds, so less than two say nothing.
      const skew = date - Date.now();
      this.#skew = Math.abs(skew) > 2000 ? skew : 0;
    }
    if (response.ok) return response;
    const text = await response.text().catch(() => '');
    const failure = failureOf(response.status, text, response.headers.get('Retry-After'));
    if (response.status === 401) this.#denied(failure);
    throw failure;
  }

  #wait(call, failure) {
    if (!failure && !this.#waits.has(call)) return;
    if (failure) this.#waits.set(call, failure);
    else this.#waits.delete(call);
    this.dispatchEvent(new Event('change'));
  }
}
