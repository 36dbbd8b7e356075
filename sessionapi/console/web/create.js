// Making a sandbox.

import { el } from './element.js';
import { openDialog } from './dialog.js';

const TEMPLATES = [
  ['desktop', 'Desktop', 'A browser, a terminal and commands'],
  ['base', 'Base', 'Commands and files only'],
];

const TIMEOUTS = [[300, '5 minutes'], [900, '15 minutes'], [3600, '1 hour'], [4 * 3600, '4 hours'], [24 * 3600, '24 hours']];

function choice(name, value, title, detail, checked) {
  return el('label', { class: 'choice' },
    el('input', { type: 'radio', name, value, checked }),
    el('span', {}, el('strong', { text: title }), el('span', { class: 'dim', text: detail })));
}

/** Asks for the details, makes the sandbox and gives it; null when it was not made. */
export async function createSandbox(app) {
  let made = null;
  await openDialog({
    title: 'New sandbox',
    verb: 'Create',
    working: 'Starting the sandbox',
    body: [
      el('div', { class: 'field', role: 'radiogroup', 'aria-labelledby': 'template-label' },
        el('span', { class: 'label', id: 'template-label', text: 'Template' }),
        el('div', { class: 'choices' },
          TEMPLATES.map(([value, title, detail], n) => choice('template', value, title, detail, n === 0)))),
      el('div', { class: 'columns' },
        el('div', { class: 'field' },
          el('label', { for: 'timeout', text: 'Time' }),
          el('select', { id: 'timeout', name: 'timeout' },
            TIMEOUTS.map(([value, words]) => el('option', { value, selected: value === 3600, text: words })))),
        el('div', { class: 'field' },
          el('label', { for: 'end', text: 'When the time is up' }),
          el('select', { id: 'end', name: 'end' },
            el('option', { value: 'delete', text: 'Delete it' }),
            el('option', { value: 'pause', text: 'Pause it, keep its files' })))),
    ],
    async submit(form) {
      made = await app.api.create({
        templateID: form.get('template'),
        timeout: Number(form.get('timeout')),
        autoPause: form.get('end') === 'pause',
      });
      app.catalog.put(made);
      app.catalog.refresh();
    },
  });
  return made;
}
