// Making a sandbox.

import { openDialog } from './dialog.js';
import { el } from './element.js';
import { printable } from './names.js';

const BUILT_IN = [
  ['desktop', 'Desktop', 'A browser, a terminal, commands and files'],
  ['base', 'Base', 'Commands and files only'],
];

const TIMEOUTS = [[300, '5 minutes'], [900, '15 minutes'], [3600, '1 hour'], [4 * 3600, '4 hours'], [24 * 3600, '24 hours']];
const IDLE = [[0, 'Never'], [300, '5 minutes'], [900, '15 minutes'], [3600, '1 hour']];

function choice(value, title, detail, checked, more = null) {
  return el('label', { class: 'choice' },
    el('input', { type: 'radio', name: 'template', value, checked }),
    el('span', {}, el('strong', { text: title }), detail && el('span', { class: 'dim', text: detail }), more));
}

function select(name, label, options, chosen) {
  return el('div', { class: 'field' },
    el('label', { for: name, text: label }),
    el('select', { id: name, name }, options.map(([value, text]) => el('option', { value, text, selected: value === chosen }))));
}

/** The built-in templates, those that are in use, and room for another's name: only the API's operator knows them all. */
function templates(app) {
  const known = new Set(BUILT_IN.map(([name]) => name));
  const used = [...new Set((app.catalog.items ?? []).map((item) => item.templateID))].filter((name) => !known.has(name)).sort();
  const other = el('input', {
    type: 'text', name: 'other', 'aria-label': 'Name of another template', placeholder: 'Its name', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off',
  });
  const last = choice('', 'Another template', '', false, other);
  other.addEventListener('input', () => { last.querySelector('[type=radio]').checked = true; });
  return [
    ...BUILT_IN.map(([value, title, detail], n) => choice(value, title, detail, n === 0)),
    ...used.map((name) => choice(name, printable(name), 'In use here', false)),
    last,
  ];
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
        el('div', { class: 'choices' }, templates(app))),
      el('div', { class: 'field' },
        el('label', { for: 'name', text: 'Name (optional)' }),
        el('input', { type: 'text', id: 'name', name: 'name', maxlength: 80, autocomplete: 'off' })),
      el('div', { class: 'columns' },
        select('timeout', 'Time', TIMEOUTS, 3600),
        select('end', 'When the time is up', [['delete', 'Delete it'], ['pause', 'Pause it, keep its files']], 'delete'),
        select('idle', 'Pause it when unused for', IDLE, 0)),
    ],
    async submit(form) {
      const template = form.get('template') || form.get('other').trim();
      if (!template) throw new Error('Enter the name of the template.');
      const name = form.get('name').trim();
      made = await app.api.create({
        templateID: template,
        timeout: Number(form.get('timeout')),
        idleTimeout: Number(form.get('idle')),
        autoPause: form.get('end') === 'pause',
        metadata: name ? { name } : undefined,
      });
      app.catalog.put(made);
      app.catalog.refresh();
    },
  });
  return made;
}
