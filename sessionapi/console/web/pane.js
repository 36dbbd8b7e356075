// A pane shows one panel of a sandbox in a frame.

import { button, el, icon, setText } from './element.js';

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

  /** reload() is asked for a fresh panel; it ends in a call of show(). */
  constructor(name, shape, reload) {
    this.#name = name;
    this.#link = el('a', {
      class: 'button quiet square', target: '_blank', rel: 'noopener noreferrer',
      title: `Open ${name.toLowerCase()} in a new tab`, 'aria-label': `Open ${name.toLowerCase()} in a new tab`,
    }, icon('external'));
    this.#frame = this.#makeFrame();
    this.node = el('section', { class: 'pane', 'aria-label': name },
      el('header', {},
        icon(shape), el('h3', { text: name }), this.#status,
        el('span', { class: 'tools' },
          button('reload', '', reload, { class: 'quiet', label: `Reload ${name.toLowerCase()}` }),
          this.#link,
          document.fullscreenEnabled && button('expand', '', () => this.#toggleFullscreen(),
            { class: 'quiet', label: `Show ${name.toLowerCase()} full screen` }))),
      this.#frame);
  }

  #makeFrame() {
    return el('iframe', {
      title: this.#name, allow: 'clipboard-read *; clipboard-write *; fullscreen *', referrerpolicy: 'no-referrer',
      on: { load: () => setText(this.#status, '') },
    });
  }

  /** Loads the panel. A new frame leaves no step in the history to go back to. */
  show(address) {
    const url = new URL(address, location.href);
    this.#link.href = url.href;
    const frame = this.#makeFrame();
    // Without a panel address of its own a deployment serves panels here. They
    // must not see this page's storage, so the frame gets no origin.
    if (url.origin === location.origin) {
      frame.setAttribute('sandbox',
        'allow-scripts allow-forms allow-popups allow-modals allow-downloads allow-pointer-lock');
    }
    frame.src = url.href;
    setText(this.#status, 'Loading');
    this.#frame.replaceWith(frame);
    this.#frame = frame;
  }

  #toggleFullscreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.node.requestFullscreen().catch(() => setText(this.#status, 'The browser refused full screen'));
  }
}
