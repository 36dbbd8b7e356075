// A pane shows one panel of a sandbox in a frame.

import { button, el, icon, setText } from './element.js';

// A panel never navigates this page. One of another origin keeps its own, which
// its storage is bound to; one of this origin must not see this page's storage,
// so that it gets none.
const SANDBOX = 'allow-scripts allow-forms allow-popups allow-modals allow-downloads allow-pointer-lock';
const SANDBOX_ELSEWHERE = `${SANDBOX} allow-same-origin`;

// A panel's origin is opaque, which only the star matches.
const ALLOW = 'clipboard-read *; clipboard-write *; fullscreen *';

/**
 * A pane whose frame shows the panel at the address given to show(). The address
 * holds a token: it goes into the frame and the link, never into this page's own
 * address or a message.
 */
export class Pane {
  #frame;
  #status = el('span', { class: 'dim small' });
  #link;
  #name;
  #extra = el('span', { class: 'extra' });
  #close;

  /** reload() is asked for a fresh panel; it ends in a call of show(). close() is asked to take the pane away. */
  constructor(name, shape, reload, close) {
    this.#name = name;
    const lower = name.toLowerCase();
    this.#link = el('a', {
      class: 'button quiet square', target: '_blank', rel: 'noopener noreferrer',
      title: `Open ${lower} in a new tab`, 'aria-label': `Open ${lower} in a new tab`,
    }, icon('external'));
    this.#close = button('close', '', close, { class: 'quiet', label: `Close ${lower}` });
    this.#frame = this.#makeFrame();
    this.node = el('section', { class: 'pane', 'aria-label': name },
      el('header', {},
        icon(shape), el('h3', { text: name }), this.#status,
        el('span', { class: 'tools' },
          this.#extra,
          button('reload', '', reload, { class: 'quiet', label: `Reload ${lower}` }),
          this.#link,
          document.fullscreenEnabled && button('expand', '', () => this.#toggleFullscreen(),
            { class: 'quiet', label: `Show ${lower} full screen` }),
          this.#close)),
      this.#frame);
  }

  #makeFrame() {
    return el('iframe', {
      title: this.#name, allow: ALLOW, sandbox: SANDBOX, referrerpolicy: 'no-referrer',
      on: { load: () => setText(this.#status, '') },
    });
  }

  /** Loads the panel. A new frame leaves no step in the history to go back to. */
  show(address) {
    this.#link.href = address;
    const frame = this.#makeFrame();
    if (new URL(address).origin !== location.origin) frame.setAttribute('sandbox', SANDBOX_ELSEWHERE);
    frame.src = address;
    setText(this.#status, 'Loading');
    this.#frame.replaceWith(frame);
    this.#frame = frame;
  }

  /** Takes the panel out of the frame: its streams end. */
  clear() {
    const frame = this.#makeFrame();
    this.#frame.replaceWith(frame);
    this.#frame = frame;
  }

  /** Puts a button beside the pane's own, or takes it away with null. */
  offer(node) {
    this.#extra.replaceChildren(...(node ? [node] : []));
  }

  /** Whether it may be closed. */
  set closable(on) { this.#close.hidden = !on; }

  focus() { this.node.querySelector('header button').focus(); }

  #toggleFullscreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.node.requestFullscreen().catch(() => setText(this.#status, 'The browser refused full screen'));
  }
}
