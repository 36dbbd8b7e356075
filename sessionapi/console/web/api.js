// The session API, as the page uses it.

import { Caller } from './call.js';
import { events } from './events.js';
import { Failure } from './failure.js';
import { backOff } from './wait.js';

const DESKTOP_SECONDS = 12 * 3600;
const READ_TRIES = 6;

/** Api has a method for each call. */
export class Api extends Caller {
  /** One page of sandboxes in any state: {items, next}. Whoever lists asks again anyway. */
  async page(token, signal) {
    const query = new URLSearchParams({
      state: 'creating,running,pausing,paused,resuming,deleting,failed', limit: '100',
    });
    if (token) query.set('nextToken', token);
    const response = await this.send('GET', `/v2/sandboxes?${query}`, { signal, once: true });
    return { items: await response.json(), next: response.headers.get('x-next-token') ?? '' };
  }

  /** Follows the sandboxes that change: events "ready", "sandbox" and "gone". */
  async follow(signal) {
    return events(await this.send('GET', '/v2/sandboxes/events', { signal, once: true }));
  }

  /** Makes a sandbox. Asked twice, there would be two. */
  create(options) { return this.json('POST', '/sandboxes', { body: options, once: true }); }

  get(id) { return this.json('GET', at(id)); }

  remove(id) { return this.json('DELETE', at(id)); }

  pause(id) { return this.json('POST', at(id, 'pause')); }

  resume(id) { return this.json('POST', at(id, 'resume'), { body: {} }); }

  /** Moves the end of a running sandbox to so many seconds from now. */
  extend(id, timeout) { return this.json('POST', at(id, 'timeout'), { body: { timeout } }); }

  async startDesktop(id, signal) {
    const desktop = await this.json('POST', at(id, 'desktop/start'), { body: { expiresInSeconds: DESKTOP_SECONDS }, signal });
    return { ...desktop, desktopUrl: address(desktop.desktopUrl), terminalUrl: address(desktop.terminalUrl) };
  }

  // ---- ports and panels ----

  /** The registered ports. */
  async ports(id, signal) {
    return (await this.json('GET', at(id, 'ports'), { signal })).ports;
  }

  register(id, port) { return this.json('PUT', at(id, 'ports', port), { body: {} }); }

  unregister(id, port) { return this.json('DELETE', at(id, 'ports', port)); }

  /** A signed URL: {url, token, expiresAt}. */
  async panel(id, options) {
    const panel = await this.json('POST', at(id, 'panels'), { body: options });
    return { ...panel, url: address(panel.url) };
  }

  /** Voids every panel URL made so far. */
  revoke(id) { return this.json('POST', at(id, 'panels/revoke')); }

  // ---- commands ----

  async commands(id) {
    return (await this.json('GET', at(id, 'commands'))).commands;
  }

  /** Starts a command; the key makes a repeated call find the first one's. */
  run(id, command) {
    const body = { command, background: true, idempotency_key: crypto.randomUUID?.() ?? String(Math.random()) };
    return this.json('POST', at(id, 'commands/run'), { body });
  }

  /** Follows a command from a byte offset of its output on: events "output" and at last "end". */
  async logs(id, command, cursor, signal) {
    return events(await this.send('GET', `${at(id, 'commands', command, 'logs')}?follow=1&cursor=${cursor}`,
      { signal, once: true }));
  }

  kill(id, command) { return this.json('POST', at(id, 'commands', command, 'kill')); }

  // ---- files ----

  /** What is in a folder. */
  async list(id, path, signal) {
    return (await this.json('GET', file(id, 'files/list', path), { signal })).entries;
  }

  makeFolder(id, path) { return this.json('POST', at(id, 'files/mkdir'), { body: { path } }); }

  /** Removes a file, or a folder with all that is in it. */
  removeFile(id, path, folder) {
    return this.json('DELETE', file(id, 'files', path) + (folder ? '&recursive=1' : ''));
  }

  /** Where a file is put. */
  fileAddress(id, path) { return file(id, 'files', path); }

  /** The text of a small file. */
  async text(id, path, signal) {
    return (await this.send('GET', file(id, 'files', path), { signal })).text();
  }

  /** A folder as a tar stream: a response. It is made as it is sent, so it cannot be taken up again. */
  archive(id, path, signal) { return this.send('GET', file(id, 'archive', path), { signal }); }

  /**
   * Gives a file's bytes as they come, as {chunk, size}, and after a broken
   * connection goes on where it broke. A file that changed meanwhile is a failure.
   */
  async* read(id, path, signal) {
    let at = 0;
    let size = -1;
    let version = '';
    for (let failures = 0; size < 0 || at < size;) {
      const headers = at ? { Range: `bytes=${at}-`, 'If-Range': version } : {};
      const response = await this.send('GET', file(id, 'files', path), { headers, signal });
      if (at && response.status !== 206) {
        throw new Failure(409, 'file_changed', 'The file changed while it was read. Try again.');
      }
      if (!at) {
        const length = response.headers.get('Content-Length');
        size = length === null ? -1 : Number(length);
        version = response.headers.get('Last-Modified') ?? '';
      }
      const reader = response.body.getReader();
      try {
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          at += value.length;
          failures = 0;
          yield { chunk: value, size };
        }
        if (size < 0 || size === at) return;
      } catch (err) {
        if (signal?.aborted) throw err;
      } finally {
        reader.cancel().catch(() => {}); // it broke by itself
      }
      // Without a version nobody could tell whether the rest belongs to it.
      if (!version || failures === READ_TRIES) throw new Failure(0, 'broken', 'The connection broke. Try again.');
      await backOff(failures++, null, signal);
      if (signal?.aborted) throw new DOMException('left', 'AbortError');
    }
  }
}

function at(id, action = '', ...rest) {
  return [`/sandboxes/${encodeURIComponent(id)}`, action, ...rest.map(encodeURIComponent)].filter(Boolean).join('/');
}

/** A panel's address in full; without a panel address of its own a deployment serves panels here. */
function address(url) {
  const full = new URL(url, location.href);
  if (!/^https?:$/.test(full.protocol)) throw new Failure(502, 'unexpected_response', 'The API gave no address of a panel.');
  return full.href;
}

function file(id, action, path) {
  return `${at(id, action)}?path=${encodeURIComponent(path)}`;
}
