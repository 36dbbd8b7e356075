// Dialogs are the browser's own: they keep the focus, close on Escape, and give
// the focus back.

import { button, el, progress } from './element.js';

/**
 * Opens a dialog around a form and gives a promise of whether it was carried
 * out. submit() does the work; while it runs the form shows `working`, and what
 * it throws is shown above the buttons. cancel names the other way out.
 */
export function openDialog({ title, body, verb, working, danger = false, cancel: other = 'Cancel', submit = () => {} }) {
  const problem = el('p', { class: 'problem', role: 'alert' });
  const place = el('div', { class: 'working' });
  const confirm = button('', verb, null, { type: 'submit', class: danger ? 'danger' : 'primary' });
  const cancel = button('', other, () => dialog.close());
  const heading = el('h2', { id: 'dialog-title', text: title });
  const fields = el('fieldset', {}, body);
  const form = el('form', { method: 'dialog', novalidate: true }, heading, fields, place, problem,
    el('div', { class: 'buttons' }, cancel, confirm));
  const dialog = el('dialog', { 'aria-labelledby': 'dialog-title' }, form);
  let busy = false;
  let done = false;

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    const answers = new FormData(form); // before its fields are disabled: those are left out
    problem.textContent = '';
    fields.disabled = confirm.disabled = true;
    const bar = progress(working ?? verb);
    const timer = setInterval(bar.tick, 1000);
    place.replaceChildren(bar);
    try {
      await submit(answers);
      done = true;
      dialog.close();
    } catch (err) {
      problem.textContent = err.message;
    } finally {
      clearInterval(timer);
      place.replaceChildren();
      fields.disabled = confirm.disabled = busy = false;
      if (!done) confirm.focus();
    }
  });
  // A press on the backdrop is a press on the dialog itself.
  dialog.addEventListener('pointerdown', (event) => {
    if (event.target === dialog && !busy) dialog.close();
  });

  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => { dialog.remove(); resolve(done); });
  });
}

/** Closes what is open, for when the page turns to something else. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
}
