// The page: who is signed in, and which view is shown. The address is #/ for the
// list and #/sandboxes/<id> for one sandbox; nothing secret is ever in it.

import { Api } from './api.js';
import { Catalog } from './catalog.js';
import { closeDialogs } from './dialog.js';
import { button, el, icon } from './element.js';
import { currentKey, forgetKey, takeKeyFromAddress } from './key.js';
import { listView } from './list.js';
import { complain, mountNotices, settle } from './notice.js';
import { sandboxView } from './sandbox.js';
import { signinView } from './signin.js';

const main = document.getElementById('main');
const signout = button('signout', 'Forget key', () => ask(''), { class: 'quiet' });

/** What views are given. */
const app = {
  api: null,
  catalog: null,
  /** Sandboxes whose desktop was opened: it is shown again when one comes back to them. */
  opened: new Set(),

  /** Goes to a sandbox. */
  open(id) {
    history.pushState(null, '', `#/sandboxes/${encodeURIComponent(id)}`);
    route();
  },

  /** Goes from a sandbox that is no more to the list; there is no way back. */
  leave(id) {
    app.opened.delete(id);
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
  if (!app.api) return;
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
    if (app.api === api) ask('The API did not accept this key. Enter another one.');
  });
  app.catalog = new Catalog(api);
  app.catalog.addEventListener('change', () => view?.update());
  route();
  app.catalog.start();
}

/** Forgets the key and asks for another. */
function ask(why) {
  app.catalog?.stop();
  app.api = app.catalog = null;
  app.opened.clear();
  forgetKey();
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
  el('a', { class: 'brand', href: '#/' }, icon('cube'), 'CubePod'), el('span', { class: 'space' }), signout);
mountNotices(document.getElementById('notices'));
window.addEventListener('hashchange', start);
setInterval(() => { if (!document.hidden) view?.tick?.(); }, 1000);
start();
