// A run is one command in a sandbox: where it stands, and its output as it grows.

import { duration } from './clock.js';
import { Output } from './output.js';
import { backOff, seen } from './wait.js';

// What a shell means by these, and by them alone.
const EXITS = { 0: 'Succeeded', 126: 'Could not be executed (exit code 126)', 127: 'Command not found (exit code 127)' };

/** The text of an output event. Bytes that are no text come beside it, in base64. */
function textOf(output) {
  if (!output.content_b64) return output.content;
  return new TextDecoder().decode(Uint8Array.from(atob(output.content_b64), (c) => c.charCodeAt(0)));
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
    if (signal) return signal === 'SIGKILL' ? 'Killed' : `Ended by ${signal}`;
    if (code === null || code === undefined) return 'Ended';
    return EXITS[code] ?? `Failed with exit code ${code}`;
  }

  /** How long it ran, or runs already. */
  took(now) {
    const from = Date.parse(this.status.started_at ?? '');
    if (!from) return '';
    const to = this.running ? now : Date.parse(this.status.ended_at ?? '');
    return to ? duration((to - from) / 1000) : '';
  }

  /** Follows the output until it ends or leave() is called. One run is followed at a time: each holds a connection. */
  async follow() {
    if (this.#abort || this.#drained) return;
    const { signal } = this.#abort = new AbortController();
    for (let failures = 0; !this.#drained && !signal.aborted; failures++) {
      let failure = null;
      try {
        await seen(signal);
        if (signal.aborted) return;
        const events = await this.#api.logs(this.#sandbox, this.id, this.#cursor, signal);
        this.#tell('');
        for await (const [event, data] of events) {
          if (signal.aborted) return;
          failures = 0;
          if (event === 'output') this.#take(data);
          else if (event === 'end') this.#end(data);
        }
        if (this.#drained) return;
      } catch (err) {
        if (signal.aborted) return;
        failure = err;
        if (err.status >= 400 && err.status < 500 && err.status !== 429) {
          this.#tell(err.message);
          this.#abort = null;
          return;
        }
      }
      // A stream that broke once is taken up where it was, without a word.
      if (failures) this.#tell(failure?.message ?? 'The connection broke. Trying again.');
      await backOff(failures, failure, signal);
    }
  }

  #take(output) {
    this.#cursor = output.cursor;
    if (output.truncated) this.output.cut();
    this.output.append(textOf(output));
    this.#tell('');
  }

  #end(status) {
    this.status = { ...this.status, ...status, id: this.id };
    this.#drained = true;
    this.#abort = null;
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
