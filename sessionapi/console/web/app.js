// The page: who is signed in, and which view is shown. The address is #/ for the
// list and #/sandboxes/<id> for one sandbox; nothing secret is ever in it.

import { Api } from './api.js';
import { Catalog } from './catalog.js';
import { closeDialogs } from './dialog.js';
import { button, el, icon } from './element.js';
import { currentKey, forgetKey, takeKeyFromAddress } from './key.js';
import { listView } from './list.js';
import { forgetCommands } from './memory.js';
import { complain, mountNotices, settle } from './notice.js';
import { sandboxView } from './sandbox.js';
import { signinView } from './signin.js';
import { StatusLine } from './statusline.js';
import { Transfers } from './transfers.js';

const main = document.getElementById('main');
const signout = button('signout', 'Forget key', () => ask(''), { class: 'quiet' });
const line = new StatusLine();

/** What views are given. */
const app = {
  signedIn: false,
  api: null,
  catalog: null,
  /** Sandboxes whose desktop was opened: it is shown again when one comes back to them. */
  opened: new Set(),
  /** The links that were made here, by sandbox. */
  links: new Map(),
  /** Files on their way. */
  transfers: new Transfers(),

  /** Goes to a sandbox. */
  open(id) {
    history.pushState(null, '', `#/sandboxes/${encodeURIComponent(id)}`);
    route();
  },

  /** Goes from a sandbox that is no more to the list; there is no way back. */
  leave(id) {
    app.opened.delete(id);
    app.links.delete(id);
    app.catalog?.drop(id);
    if (idInAddress() !== id) return false;
    history.replaceState(null, '', '#/');
    route();
    return true;
  },

  /** A sandbox turned out to be gone: back to the list. */
  gone(id) {
    if (app.leave(id)) complain(`The sandbox ${id} is gone: it was deleted, or its time ran out.`);
  },
};

let view = null;

function idInAddress() {
  const found = /^#\/sandboxes\/([^/?]+)$/.exec(location.hash);
  if (!found) return '';
  try { return decodeURIComponent(found[1]); } catch { return ''; }
}

function show(next) {
  closeDialogs();
  view?.close();
  view = next;
  main.replaceChildren(view.node);
  document.title = `${view.title} · CubePod`;
  view.update();
  window.scrollTo(0, 0);
  if (view.focus) view.focus();
  else main.focus({ preventScroll: true });
}

function route() {
  if (!app.signedIn) return;
  settle();
  const id = idInAddress();
  show(id ? sandboxView(app, id) : listView(app));
}

/** Signs in with the key that is kept, or asks for one. */
function enter() {
  const key = currentKey();
  if (!key) return ask('');
  signout.hidden = false;
  const api = app.api = new Api(key, () => {
    if (app.signedIn && app.api === api) ask('The API did not accept this key. Enter another one.');
  });
  app.signedIn = true;
  app.catalog = new Catalog(api);
  app.catalog.addEventListener('change', () => view?.update());
  line.watch(api, app.catalog);
  route();
  app.catalog.start();
}

/** Forgets the key and asks for another. What still waits for an answer gets none. */
function ask(why) {
  app.signedIn = false;
  app.catalog?.stop();
  app.api?.forget();
  app.opened.clear();
  app.links.clear();
  app.transfers.clear();
  line.leave();
  forgetKey();
  forgetCommands();
  settle();
  signout.hidden = true;
  show(signinView(enter, why));
}

function start() {
  const taken = takeKeyFromAddress();
  if (view && !taken) return route();
  app.catalog?.stop();
  enter();
}

document.getElementById('bar').append(
  el('a', { class: 'brand', href: '#/' }, icon('cube'), 'CubePod'), line.node, el('span', { class: 'space' }), signout);
mountNotices(document.getElementById('notices'));
document.getElementById('transfers').append(app.transfers.node);
window.addEventListener('hashchange', start);
setInterval(() => { if (!document.hidden) view?.tick?.(); }, 1000);
start();
