// A run is one command in a sandbox: where it stands, and its output as it grows.

import { duration } from './clock.js';
import { Output } from './output.js';

const WAIT_MS = 25000;
const GENTLE_MS = 100;
const EMPTY_MS = 1000;
const BACKOFF_MS = [1000, 2000, 4000, 8000, 15000];

/** Waits, for a time or until told to stop. */
function rest(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

/** Resolves once the page is looked at. */
function seen(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener('visibilitychange', check);
      resolve();
    };
    document.addEventListener('visibilitychange', check);
    signal.addEventListener('abort', check, { once: true });
  });
}

/** The text of a logs answer. Bytes that are no text come beside it, in base64. */
function textOf(logs) {
  if (!logs.content_b64) return logs.content;
  return new TextDecoder().decode(Uint8Array.from(atob(logs.content_b64), (c) => c.charCodeAt(0)));
}

/** Run dispatches "change" whenever there is something new to show. */
export class Run extends EventTarget {
  #api;
  #sandbox;
  #cursor = 0;
  #abort = null;
  #drained = false;

  /** What to call it: the command, or its id when another client ran it. */
  name;
  /** Its last known status, as podd says it. */
  status;
  /** Why its output does not come, or ''. */
  trouble = '';

  constructor(api, sandbox, status, command) {
    super();
    this.#api = api;
    this.#sandbox = sandbox;
    this.status = status;
    this.name = command || status.id;
    this.output = new Output(`Output of ${this.name}`);
  }

  get id() { return this.status.id; }

  get running() { return this.status.running; }

  /** Where it stands: 'running', 'ok' or 'failed'. */
  get outcome() {
    if (this.running) return 'running';
    return this.status.exit_code === 0 ? 'ok' : 'failed';
  }

  /** The same in words. */
  get words() {
    const { running, exit_code: code, signal, timed_out: late, oom_killed: oom } = this.status;
    if (running) return 'Running';
    if (oom) return 'Out of memory';
    if (late) return 'Timed out';
    if (signal) return `Ended by ${signal}`;
    return code === null || code === undefined ? 'Ended' : `Exit ${code}`;
  }

  /** How long it ran, or runs already. */
  took(now) {
    const from = Date.parse(this.status.started_at ?? '');
    if (!from) return '';
    const to = this.running ? now : Date.parse(this.status.ended_at ?? '');
    return to ? duration((to - from) / 1000) : '';
  }

  /** Reads the output until it ends or leave() is called. One run is followed at a time: each holds a connection. */
  async follow() {
    if (this.#abort || this.#drained) return;
    const abort = this.#abort = new AbortController();
    const { signal } = abort;
    for (let failures = 0; !this.#drained && !signal.aborted;) {
      await seen(signal);
      const asked = performance.now();
      try {
        const logs = await this.#api.logs(this.#sandbox, this.id, this.#cursor, this.running ? WAIT_MS : 0, signal);
        if (signal.aborted) break;
        failures = 0;
        this.#take(logs);
        if (this.#drained) break;
        const empty = logs.cursor === this.#before;
        await rest(empty && performance.now() - asked < EMPTY_MS ? EMPTY_MS : GENTLE_MS, signal);
      } catch (err) {
        if (signal.aborted) break;
        this.#tell(err.message);
        if (err.status >= 400 && err.status < 500 && err.status !== 429) break;
        await rest(BACKOFF_MS[Math.min(failures++, BACKOFF_MS.length - 1)], signal);
      }
    }
    if (this.#abort === abort) this.#abort = null;
  }

  #before = 0;

  #take(logs) {
    const { content, content_b64: b64, cursor, ...status } = logs;
    this.#before = this.#cursor;
    this.#cursor = cursor;
    this.status = { ...this.status, ...status, id: this.id };
    if (status.truncated) this.output.cut();
    this.output.append(textOf({ content, content_b64: b64 }));
    // The answer that says it ended may hold only the first part of the rest.
    this.#drained = !status.running && cursor === this.#before;
    this.#tell('');
  }

  #tell(trouble) {
    this.trouble = trouble;
    this.dispatchEvent(new Event('change'));
  }

  /** Stops reading; follow() goes on from there. */
  leave() {
    this.#abort?.abort();
    this.#abort = null;
  }

  /** Takes a newer status from a list of commands. */
  learn(status) {
    this.status = { ...this.status, ...status };
    this.#tell(this.trouble);
  }

  /** Ends the command and everything it started. */
  async kill() {
    await this.#api.kill(this.#sandbox, this.id);
  }
}
