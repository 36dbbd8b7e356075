// The session API, as the page uses it.

/** A call that did not succeed. status is 0 when the API was not reached. */
export class Failure extends Error {
  constructor(status, code, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }

  /** The sandbox does not exist, or no longer. */
  get gone() {
    return this.status === 410 || this.code === 'sandbox_not_found';
  }
}

/** Turns an API message into a sentence: "no room" becomes "No room." */
export function sentence(text) {
  const s = String(text ?? '').trim();
  if (!s) return 'Something went wrong.';
  return s[0].toUpperCase() + s.slice(1) + (/[.!?…]$/.test(s) ? '' : '.');
}

async function failureOf(response) {
  let body = null;
  try { body = await response.json(); } catch { /* a proxy's own page */ }
  const message = body?.message || body?.error
    || `the API answered ${response.status} ${response.statusText}`.trim();
  return new Failure(response.status, body?.error ?? 'unexpected_response', sentence(message),
    Number(response.headers.get('Retry-After')) || 0);
}

/** Api makes the calls. denied is told when the key is not accepted. */
export class Api {
  #key;
  #denied;
  #skew = 0;

  constructor(key, denied) {
    this.#key = key;
    this.#denied = denied;
  }

  /** The server's time in milliseconds. Sandboxes end by its clock. */
  now() {
    return Date.now() + this.#skew;
  }

  async #send(method, path, body, signal) {
    const headers = { 'X-API-Key': this.#key, Accept: 'application/json' };
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    let response;
    try {
      response = await fetch(path, {
        method, headers, signal, cache: 'no-store', credentials: 'omit', redirect: 'error',
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (err) {
      if (signal?.aborted) throw err;
      throw new Failure(0, 'unreachable', 'The API cannot be reached. Check the network and that it runs.');
    }
    const date = Date.parse(response.headers.get('Date') ?? '');
    if (date) {
      // The header counts whole seconds, so less than two say nothing.
      const skew = date - Date.now();
      this.#skew = Math.abs(skew) > 2000 ? skew : 0;
    }
    if (response.ok) return response;
    const failure = await failureOf(response);
    if (response.status === 401) this.#denied(failure);
    throw failure;
  }

  async #json(method, path, body, signal) {
    const response = await this.#send(method, path, body, signal);
    if (response.status === 204) return null;
    try {
      return await response.json();
    } catch (err) {
      if (signal?.aborted) throw err;
      throw new Failure(response.status, 'unexpected_response', 'The API’s answer broke off.');
    }
  }

  /** One page of sandboxes in any state: {items, next}. */
  async page(token, signal) {
    const query = new URLSearchParams({
      state: 'creating,running,pausing,paused,resuming,deleting,failed', limit: '100',
    });
    if (token) query.set('nextToken', token);
    const response = await this.#send('GET', `/v2/sandboxes?${query}`, undefined, signal);
    return { items: await response.json(), next: response.headers.get('x-next-token') ?? '' };
  }

  /**
   * Follows the sandboxes that change: calls told with each event's name and
   * data until the stream ends or signal does.
   */
  async follow(told, signal) {
    const response = await this.#send('GET', '/v2/sandboxes/events', undefined, signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        const event = /^event: (.*)$/m.exec(block)?.[1];
        const data = /^data: (.*)$/m.exec(block)?.[1];
        if (event && data) told(event, JSON.parse(data));
      }
    }
  }

  create(options) { return this.#json('POST', '/sandboxes', options); }

  get(id) { return this.#json('GET', at(id)); }

  remove(id) { return this.#json('DELETE', at(id)); }

  pause(id) { return this.#json('POST', at(id, 'pause')); }

  resume(id) { return this.#json('POST', at(id, 'resume'), {}); }

  startDesktop(id, signal) {
    return this.#json('POST', at(id, 'desktop/start'), { expiresInSeconds: 12 * 3600 }, signal);
  }

  commands(id) { return this.#json('GET', at(id, 'commands')); }

  run(id, command) {
    return this.#json('POST', at(id, 'commands/run'), { command, background: true });
  }

  /** Output from a byte offset on; waits up to waitMs for some. */
  logs(id, command, cursor, waitMs, signal) {
    return this.#json('GET', `${at(id, 'commands', command, 'logs')}?cursor=${cursor}&wait_ms=${waitMs}`,
      undefined, signal);
  }

  kill(id, command) { return this.#json('POST', at(id, 'commands', command, 'kill')); }
}

function at(id, action = '', ...rest) {
  return [`/sandboxes/${encodeURIComponent(id)}`, action, ...rest.map(encodeURIComponent)].filter(Boolean).join('/');
}
