// Links to a sandbox's desktop or terminal, for somebody else.

import { clockTime, secondsLeft, until } from './clock.js';
import { openDialog } from './dialog.js';
import { button, copyButton, el, setText } from './element.js';
import { say } from './notice.js';

const TARGETS = {
  desktop: { words: 'Desktop', port: 8080, path: '/vnc.html?autoconnect=true&resize=scale' },
  terminal: { words: 'Terminal', port: 7681, path: '/' },
};
const MODES = { view: 'View only', control: 'Control' };
const EXPIRIES = [[900, '15 minutes'], [3600, '1 hour'], [8 * 3600, '8 hours'], [24 * 3600, '24 hours']];

function select(name, label, options, chosen) {
  return el('div', { class: 'field' },
    el('label', { for: `share-${name}`, text: label }),
    el('select', { id: `share-${name}`, name },
      options.map(([value, text]) => el('option', { value, text, selected: value === chosen }))));
}

/** A link that was made here. */
class Link {
  #when = el('span', { class: 'dim' });

  constructor(title, url, expiresAt) {
    this.expiresAt = expiresAt;
    const field = el('input', { type: 'text', class: 'mono', readonly: true, value: url, 'aria-label': `Link: ${title}` });
    field.addEventListener('focus', () => field.select());
    this.copy = copyButton('Copy the link', () => url, 'Copy');
    this.node = el('li', {}, el('div', { class: 'what' }, el('strong', { text: title }), this.#when),
      el('div', { class: 'address' }, field, this.copy));
  }

  show(now) {
    const over = secondsLeft(this.expiresAt, now) === 0;
    this.node.dataset.over = over;
    setText(this.#when, over ? 'expired' : `good until ${clockTime(this.expiresAt, now)} (${until(this.expiresAt, now)})`);
  }
}

/** The share panel of the sandbox with this id. */
export class Share {
  #app;
  #id;
  #revoked;
  #state = '';
  #links;
  #submit = button('link', 'Create link', null, { type: 'submit', class: 'primary' });
  #revoke = button('', 'Revoke all links', () => this.#askRevoke(), { class: 'quiet danger' });
  #problem = el('p', { class: 'problem', role: 'alert' });
  #list = el('ul', { class: 'links', 'aria-label': 'Links' });
  #note = el('p', { class: 'dim small' });
  #form;

  /** revoked() is told after every link was revoked: what this page shows is cut off, too. */
  constructor(app, id, revoked) {
    this.#app = app;
    this.#id = id;
    this.#revoked = revoked;
    // Kept while the page is: the API does not know links that it signed.
    if (!app.links.has(id)) app.links.set(id, []);
    this.#links = app.links.get(id);
    this.#form = el('form', { novalidate: true },
      el('div', { class: 'columns' },
        select('target', 'Of the', Object.entries(TARGETS).map(([value, { words }]) => [value, words])),
        select('mode', 'To', Object.entries({ view: 'View only', control: 'View and control' })),
        select('expiry', 'For', EXPIRIES, 3600)),
      this.#submit);
    this.#form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#create(new FormData(this.#form));
    });
    this.node = el('div', { class: 'share' },
      el('section', {},
        el('h2', { text: 'Share a link' }),
        el('p', { class: 'dim', text: 'Whoever has the link sees the sandbox’s screen until the link expires, without a key. A link for control can click and type as well.' }),
        this.#form, this.#problem, this.#list, this.#note,
        el('hr'),
        el('div', { class: 'revoke' },
          el('p', { class: 'dim', text: 'Revoking makes every link and panel of this sandbox void at once, also those made elsewhere.' }), this.#revoke)));
    this.#list.append(...this.#links.map((link) => link.node));
    this.#show();
  }

  focus() { this.#form.querySelector('select').focus(); }

  update(state) {
    this.#state = state;
    this.#show();
  }

  tick() {
    const now = this.#app.api.now();
    for (const link of this.#links) link.show(now);
  }

  async #create(form) {
    const target = TARGETS[form.get('target')];
    const mode = form.get('mode');
    this.#submit.disabled = true;
    setText(this.#problem, '');
    try {
      // The link shows something only where the desktop runs; started twice, it stays as it is.
      await this.#app.api.startDesktop(this.#id);
      const panel = await this.#app.api.panel(this.#id, {
        port: target.port, path: target.path, mode, expiresInSeconds: Number(form.get('expiry')),
      });
      const link = new Link(`${target.words}, ${MODES[mode].toLowerCase()}`, panel.url, panel.expiresAt);
      this.#links.unshift(link);
      this.#list.prepend(link.node);
      this.#show();
      link.copy.querySelector('button').focus();
    } catch (err) {
      if (err.gone) return this.#app.gone(this.#id);
      setText(this.#problem, err.message);
    } finally {
      this.#show();
    }
  }

  async #askRevoke() {
    const done = await openDialog({
      title: 'Revoke all links?',
      body: el('p', { text: 'Every link and panel of this sandbox stops working at once, and whoever watches is cut off. This cannot be undone; new links can be made.' }),
      verb: 'Revoke',
      working: 'Revoking',
      danger: true,
      submit: async () => {
        try {
          await this.#app.api.revoke(this.#id);
        } catch (err) {
          if (!err.gone) throw err;
          this.#app.gone(this.#id);
        }
      },
    });
    if (!done) return;
    this.#links.length = 0;
    this.#list.replaceChildren();
    this.#show();
    say('All links were revoked.');
    this.#revoked();
  }

  #show() {
    const able = ['running', 'paused'].includes(this.#state);
    this.#submit.disabled = !able;
    this.#revoke.disabled = !able;
    this.#list.hidden = !this.#links.length;
    setText(this.#note, this.#links.length ? 'Links are listed until this page is closed. They go on working until they expire.' : '');
    this.tick();
  }
}
