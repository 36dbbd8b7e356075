// The question for the API key.

import { Api } from './api.js';
import { button, el } from './element.js';
import { keepKey } from './key.js';

/** The view that asks for the key; done() is called once the API takes one. */
export function signinView(done, why = '') {
  const problem = el('p', { class: 'problem', role: 'alert', id: 'key-problem', text: why });
  const field = el('input', {
    id: 'key', name: 'key', type: 'password', required: true, autocomplete: 'off', autocapitalize: 'off',
    spellcheck: 'false', 'aria-describedby': 'key-problem key-hint',
  });
  const remember = el('input', { type: 'checkbox', name: 'remember' });
  const submit = button('', 'Continue', null, { type: 'submit', class: 'primary' });

  async function onsubmit(event) {
    event.preventDefault();
    const key = field.value.trim();
    problem.textContent = key ? '' : 'Enter an API key.';
    if (!key || submit.disabled) return field.focus();
    // Such a key cannot be sent in a header, so it is none.
    if (!/^[\x21-\x7e]+$/.test(key)) {
      problem.textContent = 'This is not an API key: it has spaces or characters that keys never have.';
      return field.focus();
    }
    submit.disabled = true;
    try {
      await new Api(key, () => {}).page('');
      keepKey(key, remember.checked);
      done();
    } catch (err) {
      problem.textContent = err.status === 401 ? 'This key was not accepted.' : err.message;
      field.select();
      field.focus();
    } finally {
      submit.disabled = false;
    }
  }

  const node = el('section', { class: 'signin' },
    el('h1', { text: 'Connect to the session API' }),
    el('p', { class: 'dim' }, 'Calls go to ', el('code', { text: location.host }), ' with your key.'),
    el('form', { novalidate: true, on: { submit: onsubmit } },
      el('label', { for: 'key', text: 'API key' }),
      field,
      problem,
      el('label', { class: 'check' }, remember, 'Remember in this browser'),
      submit),
    el('p', { class: 'dim small', id: 'key-hint' },
      'Without it the key is kept until this tab closes. It is sent nowhere else and never put into an address.'),
  );
  return { node, title: 'Connect', focus: () => field.focus(), update() {}, close() {} };
}
