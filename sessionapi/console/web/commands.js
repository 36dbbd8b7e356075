// Running commands in a sandbox.

import { button, copyButton, el, icon, setText } from './element.js';
import { recall, remember } from './memory.js';
import { Run } from './run.js';

/** One command in the history. */
class Entry {
  #words = el('span');
  #name = el('span', { class: 'mono name' });

  constructor(run, choose) {
    this.run = run;
    this.#name.textContent = run.name;
    this.button = el('button', { type: 'button', title: run.name, on: { click: choose } }, this.#name,
      el('span', { class: 'outcome' }, el('span', { class: 'dot' }), this.#words));
    this.node = el('li', {}, this.button);
    this.show(false);
  }

  show(chosen) {
    this.button.dataset.outcome = this.run.outcome;
    setText(this.#words, this.run.words);
    if (chosen) this.button.setAttribute('aria-current', 'true');
    else this.button.removeAttribute('aria-current');
  }
}

/** The commands panel of the sandbox with this id. */
export class Commands {
  #app;
  #id;
  #state = '';
  #entries = [];
  #chosen = null;
  #recall = -1;
  #asked = false;
  #busy = false;

  #field = el('textarea', {
    id: 'command', rows: 1, class: 'mono', placeholder: 'Run a command', spellcheck: 'false', autocomplete: 'off',
    autocapitalize: 'off', 'aria-describedby': 'command-hint',
  });
  #submit = button('play', 'Run', null, { type: 'submit', class: 'primary' });
  #problem = el('p', { class: 'problem', role: 'alert' });
  #history = el('ol', { class: 'history', 'aria-label': 'Commands' });
  #result = el('section', { class: 'result', 'aria-label': 'Output' });
  #title = el('h3', { class: 'mono' });
  #words = el('span', { class: 'outcome', role: 'status' });
  #took = el('span', { class: 'dim small number' });
  #trouble = el('p', { class: 'banner', hidden: true });
  #stop = button('stop', 'Kill', () => this.#kill(), { title: 'End the command and everything it started' });
  #place = el('div', { class: 'place' });
  #body = el('div', { class: 'runs' }, this.#history, this.#result);
  #empty = el('div', { class: 'stage' });

  constructor(app, id) {
    this.#app = app;
    this.#id = id;
    const form = el('form', { class: 'prompt', novalidate: true },
      el('label', { for: 'command', class: 'mono' }, el('span', { class: 'hidden', text: 'Command' }), el('span', { 'aria-hidden': 'true', text: '$' })),
      this.#field, this.#submit,
      el('span', { class: 'hidden', id: 'command-hint', text: 'Enter runs it, Shift and Enter starts a new line, the up arrow brings earlier commands back.' }));
    form.addEventListener('submit', (event) => { event.preventDefault(); this.#run(); });
    this.#field.addEventListener('keydown', (event) => this.#onkey(event));
    this.#field.addEventListener('input', () => this.#grow());
    this.#result.append(
      el('header', {}, this.#title, el('span', { class: 'facts' }, this.#words, this.#took),
        el('span', { class: 'tools' }, this.#stop, copyButton('Copy the output', () => this.#chosen?.run.output.text ?? ''))),
      this.#trouble, this.#place);
    this.node = el('div', { class: 'commands' }, form, this.#problem, this.#body, this.#empty);
    this.#render();
  }

  focus() { this.#field.focus(); }

  /** The panel came into view: asks once what ran here before. */
  async shown() {
    if (this.#asked || this.#state !== 'running') return;
    this.#asked = true;
    try {
      const commands = await this.#app.api.commands(this.#id);
      for (const status of commands) {
        const known = this.#entries.find((entry) => entry.run.id === status.id);
        if (known) known.run.learn(status);
        else this.#add(new Run(this.#app.api, this.#id, status, recall(this.#id, status.id)));
      }
      this.#sort();
      if (!this.#chosen && this.#entries.length) this.#choose(this.#entries[0]);
    } catch (err) {
      this.#asked = false;
      if (err.gone) this.#app.gone(this.#id);
      else setText(this.#problem, err.message);
    }
    this.#render();
  }

  update(state) {
    if (state === this.#state) return;
    this.#state = state;
    this.#asked = false;
    if (state === 'running') {
      this.#chosen?.run.follow();
      if (!this.node.hidden) this.shown();
    } else {
      this.#chosen?.run.leave();
    }
    this.#render();
  }

  tick() {
    if (this.#chosen) setText(this.#took, this.#chosen.run.took(this.#app.api.now()));
  }

  close() { this.#chosen?.run.leave(); }

  async #run() {
    const command = this.#field.value.trim();
    if (!command || this.#busy || this.#state !== 'running') return;
    this.#busy = this.#submit.disabled = true;
    setText(this.#problem, '');
    try {
      const status = await this.#app.api.run(this.#id, command);
      const { output, ...rest } = status;
      this.#field.value = '';
      this.#grow();
      this.#recall = -1;
      remember(this.#id, rest.id, command);
      const entry = this.#add(new Run(this.#app.api, this.#id, rest, command));
      this.#choose(entry);
    } catch (err) {
      if (err.gone) this.#app.gone(this.#id);
      else setText(this.#problem, err.message);
    } finally {
      this.#busy = false;
      this.#render();
    }
  }

  async #kill() {
    const { run } = this.#chosen;
    this.#stop.disabled = true;
    try {
      await run.kill();
    } catch (err) {
      setText(this.#problem, err.message);
    } finally {
      this.#stop.disabled = false;
      if (document.activeElement === document.body) this.#field.focus();
    }
  }

  #add(run) {
    const entry = new Entry(run, () => this.#choose(entry));
    run.addEventListener('change', () => this.#render(entry));
    this.#entries.unshift(entry);
    this.#history.prepend(entry.node);
    return entry;
  }

  #sort() {
    const started = ({ run }) => Date.parse(run.status.started_at ?? '') || 0;
    this.#entries.sort((a, b) => started(b) - started(a));
    this.#history.replaceChildren(...this.#entries.map((entry) => entry.node));
  }

  #choose(entry) {
    this.#chosen?.run.leave();
    this.#chosen = entry;
    this.#place.replaceChildren(entry.run.output.node);
    if (this.#state === 'running') entry.run.follow();
    this.#entries.forEach((one) => one.show(one === entry));
    this.#render(entry);
  }

  #render(entry = this.#chosen) {
    entry?.show(entry === this.#chosen);
    const able = this.#state === 'running';
    this.#field.disabled = !able;
    this.#submit.disabled = !able || this.#busy;
    this.#body.hidden = !this.#entries.length;
    this.#empty.hidden = !this.#body.hidden;
    if (!this.#empty.hidden) {
      this.#empty.replaceChildren(icon('terminal'),
        el('h2', { text: able ? 'No commands yet' : 'The sandbox is not running' }),
        el('p', { class: 'dim', text: able ? 'Commands run in bash, in /workspace. Their output appears here while they run.' : 'Commands can run once it is.' }));
    }
    if (!this.#chosen || entry !== this.#chosen) return;
    const { run } = this.#chosen;
    setText(this.#title, run.name);
    this.#words.dataset.outcome = run.outcome;
    setText(this.#words, run.words);
    this.#stop.hidden = !run.running || !able;
    setText(this.#trouble, run.trouble);
    this.#trouble.hidden = !run.trouble;
    this.tick();
  }

  #onkey(event) {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.#run();
    } else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
      this.#remember(event);
    }
  }

  // Up and down go through earlier commands, unless they move within a text of several lines.
  #remember(event) {
    const typed = [...new Set(this.#entries.map(({ run }) => run.name))];
    const past = this.#recall >= 0 && this.#field.value === typed[this.#recall];
    if (this.#field.value && !past) return;
    const to = (past ? this.#recall : -1) + (event.key === 'ArrowUp' ? 1 : -1);
    if (to >= typed.length) return;
    event.preventDefault();
    this.#recall = Math.max(to, -1);
    this.#field.value = typed[this.#recall] ?? '';
    this.#grow();
  }

  #grow() {
    this.#field.style.height = 'auto';
    this.#field.style.height = `${Math.min(this.#field.scrollHeight, 160)}px`;
  }
}
