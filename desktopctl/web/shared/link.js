// A link keeps a page connected to its sandbox: it opens the socket beside the
// page, opens it again with growing pauses, and finds out why when it cannot.
//
// The page runs in an opaque origin, where storage and cookies throw: nothing
// here touches them. A paused sandbox is never woken by the page itself; only
// the person's click is, since it is a navigation.

const FIRST_DELAY = 250;
const LONGEST_DELAY = 8000;
const QUIET = 700; // an interruption shorter than this is not worth words
const ASK_WHILE_PAUSED = 10000;

// socketURL is the WebSocket beside this page, under whatever prefix.
export function socketURL(name) {
  const url = new URL(name, location.href);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  url.search = url.hash = '';
  return url.href;
}

// option reads a parameter of the page's address, as noVNC's own page takes it.
export function option(name) {
  const fromHash = new URLSearchParams(location.hash.slice(1)).get(name);
  return fromHash ?? new URLSearchParams(location.search).get(name);
}

// looksOnly says whether this panel is for watching. That is for the looks: the
// edge enforces the mode that the token in the address carries.
export function looksOnly() {
  if (['true', '1'].includes(option('view_only'))) return true;
  for (const part of location.pathname.split('/')) {
    const [, claims, signature] = part.split('.');
    if (!signature) continue;
    try {
      return JSON.parse(atob(claims.replace(/-/g, '+').replace(/_/g, '/'))).mode === 'view';
    } catch {
      // a path like any other
    }
  }
  return false;
}

// why asks for the page again, without becoming a navigation, and puts the
// answer in one word.
async function why() {
  let response;
  try {
    response = await fetch(new URL('./', location.href), {
      cache: 'no-store',
      headers: { Accept: 'application/json' },
    });
  } catch {
    return 'unreachable';
  }
  switch (response.status) {
    case 401:
    case 403: {
      const { error } = await response.json().catch(() => ({}));
      return { token_expired: 'expired', token_revoked: 'revoked' }[error] ?? 'refused';
    }
    case 404:
    case 410:
      return 'gone';
    case 503: {
      const { error } = await response.json().catch(() => ({}));
      return error === 'sandbox_paused' ? 'paused' : 'busy';
    }
  }
  return response.ok ? 'ready' : 'busy';
}

// After these there is nothing to wait for.
const FINAL = ['expired', 'revoked', 'refused', 'gone'];

const WORDS = {
  ready: 'Connecting…',
  busy: 'Waiting for the sandbox…',
  unreachable: 'No connection. Trying again…',
  paused: 'Paused, click to resume',
  expired: 'This link has expired',
  revoked: 'This link was revoked',
  refused: 'This link is not valid',
  gone: 'This sandbox is gone',
};

// Link calls open() to connect; that reports back by opened() and closed().
export class Link {
  constructor(bar, open) {
    this.bar = bar;
    this.open = open;
    this.delay = FIRST_DELAY;
    // What was worth waiting for may be there now.
    addEventListener('online', () => this.hurry());
    document.addEventListener('visibilitychange', () => this.hurry());
  }

  start() {
    this.announce('ready', QUIET * 2);
    this.open();
  }

  opened() {
    this.delay = FIRST_DELAY;
    clearTimeout(this.announcing);
    this.bar.hide();
  }

  async closed() {
    this.announce('ready', QUIET);
    const reason = await why();
    if (FINAL.includes(reason)) {
      this.announce(reason, 0);
      return;
    }
    if (reason === 'paused') {
      this.announce(reason, 0);
      this.later(ASK_WHILE_PAUSED, () => this.closed());
      return;
    }
    if (reason !== 'ready') this.announce(reason, QUIET);
    // A little different for each page, so that a thousand of them do not come
    // back in step.
    this.later(this.delay * (0.75 + Math.random() / 2), () => this.open());
    this.delay = Math.min(this.delay * 2, LONGEST_DELAY);
  }

  // later runs next after a while, and not while nobody sees the page.
  later(delay, next) {
    this.next = next;
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.goOn(), delay);
  }

  goOn() {
    if (document.visibilityState === 'hidden' || !this.next) return;
    const next = this.next;
    this.next = null;
    next();
  }

  hurry() {
    if (this.next) {
      clearTimeout(this.waiting);
      this.goOn();
    }
  }

  announce(reason, delay) {
    clearTimeout(this.announcing);
    const show = () =>
      this.bar.show(
        WORDS[reason],
        // A navigation wakes the sandbox, and only a person starts one.
        reason === 'paused' ? () => location.replace(location.href) : null,
      );
    if (delay === 0 || this.bar.visible) show();
    else this.announcing = setTimeout(show, delay);
  }
}
