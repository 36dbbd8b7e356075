// What can be done with a sandbox, from the list and from its own page.

import { openDialog } from './dialog.js';
import { el } from './element.js';
import { complain, say, settle } from './notice.js';

const TIMES = [[900, '15 minutes'], [3600, '1 hour'], [4 * 3600, '4 hours'], [12 * 3600, '12 hours'], [24 * 3600, '24 hours']];

/** Whether an action makes sense in a state. */
export function allowed(action, state) {
  return {
    pause: ['running'],
    resume: ['paused', 'failed'],
    extend: ['running'],
    delete: ['running', 'paused', 'failed', 'creating', 'pausing', 'resuming'],
  }[action].includes(state);
}

/** Pauses the sandbox, and says so at once. */
export function pause(app, id) {
  return move(app, id, 'pausing', 'paused', () => app.api.pause(id));
}

/** Resumes the sandbox, and says so at once. */
export function resume(app, id) {
  return move(app, id, 'resuming', 'running', () => app.api.resume(id));
}

async function move(app, id, meanwhile, goal, call) {
  settle();
  app.catalog.put({ sandboxID: id, state: meanwhile });
  let failure = null;
  try {
    await call();
  } catch (err) {
    if (err.gone) return app.gone(id);
    failure = err;
  }
  await app.catalog.refresh();
  // A call that was repeated, or another's, may find its work done.
  if (failure && app.catalog.find(id)?.state !== goal) complain(failure.message);
}

/** Asks how long the sandbox is to last from now on. */
export async function extend(app, item) {
  const id = item.sandboxID;
  const done = await openDialog({
    title: 'Time left',
    body: [
      el('div', { class: 'field' },
        el('label', { for: 'extend', text: item.autoPause ? 'Pause it in' : 'Delete it in' }),
        el('select', { id: 'extend', name: 'extend' },
          TIMES.map(([value, text]) => el('option', { value, text, selected: value === 3600 })))),
      el('p', { class: 'dim small', text: 'Counted from now. A shorter time than is left brings the end nearer.' })],
    verb: 'Set',
    working: 'Setting the time',
    async submit(form) {
      try {
        await app.api.extend(id, Number(form.get('extend')));
      } catch (err) {
        if (!err.gone) throw err;
        app.gone(id);
      }
    },
  });
  if (done) app.catalog.refresh();
}

/** Asks whether to delete the sandbox, and does. */
export async function remove(app, id) {
  const done = await openDialog({
    title: 'Delete this sandbox?',
    body: [el('p', {}, 'Its files, logins and logs are removed, and its panels stop working. This cannot be undone.'),
      el('p', { class: 'mono dim', text: id })],
    verb: 'Delete',
    working: 'Deleting',
    danger: true,
    async submit() {
      try { await app.api.remove(id); } catch (err) { if (!err.gone) throw err; }
    },
  });
  if (!done) return;
  app.leave(id);
  say('The sandbox was deleted.');
  app.catalog.refresh();
}
