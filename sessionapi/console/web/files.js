// The files of a sandbox: folders to walk through, and files to bring in and take out.

import { ago, moment } from './clock.js';
import { openDialog } from './dialog.js';
import { button, el, icon, setText } from './element.js';
import { exact, join, parent, printable, size, trail } from './names.js';
import { pickedFrom } from './transfers.js';

const HOME = '/workspace';
// A browser takes seconds to lay out tens of thousands of rows.
const MOST_ROWS = 2000;

const byName = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });

/** The files panel of the sandbox with this id. */
export class Files {
  #app;
  #id;
  #path = HOME;
  #entries = null;
  #state = '';
  #abort = null;
  #visible = false;

  #up = button('up', '', () => this.#go(parent(this.#path)), { class: 'quiet', label: 'Up to the parent folder' });
  #trail = el('ol', { class: 'trail', 'aria-label': 'Folder' });
  #picker = el('input', { type: 'file', multiple: true, hidden: true });
  #actions = [
    button('folderplus', 'New folder', () => this.#askFolder()),
    button('upload', 'Upload', () => this.#picker.click(), { class: 'primary' }),
    button('download', '', () => this.#app.transfers.downloadFolder(this.#app.api, this.#id, this.#path),
      { class: 'quiet', label: 'Download this folder as a tar archive' }),
    button('reload', '', () => this.#read(), { class: 'quiet', label: 'Read the folder again' }),
  ];
  #problem = el('p', { class: 'problem', role: 'alert' });
  #list = el('ul', { class: 'rows' });
  #note = el('p', { class: 'note dim' });
  #table = el('div', { class: 'listing' },
    el('div', { class: 'row head', 'aria-hidden': 'true' },
      ['Name', 'Size', 'Changed', ''].map((text) => el('span', { class: 'cell', text }))),
    this.#list, this.#note);
  #empty = el('div', { class: 'stage' });
  #over = el('div', { class: 'drop', hidden: true });
  #uploaded = (event) => {
    if (event.detail.sandbox === this.#id && event.detail.folder === this.#path && this.#visible) this.#read();
  };

  constructor(app, id) {
    this.#app = app;
    this.#id = id;
    this.#picker.addEventListener('change', () => {
      const files = [...this.#picker.files].map((file) => ({ name: file.name, file }));
      this.#picker.value = ''; // so that the same one can be chosen again
      this.#send({ files, folders: [] });
    });
    this.node = el('div', { class: 'files' },
      el('div', { class: 'toolbar' }, this.#up, el('nav', { 'aria-label': 'Path' }, this.#trail),
        el('span', { class: 'tools' }, this.#actions), this.#picker),
      this.#problem, this.#table, this.#empty, this.#over);
    this.#listenForDrops();
    app.transfers.addEventListener('uploaded', this.#uploaded);
    this.#show();
  }

  focus() { this.#list.querySelector('button')?.focus(); }

  shown() {
    this.#visible = true;
    this.#read();
  }

  left() {
    this.#visible = false;
    this.#abort?.abort();
  }

  update(state) {
    this.#state = state;
    if (state !== 'running') this.#entries = null;
    this.#show();
    if (this.#visible) this.#read();
  }

  close() {
    this.left();
    this.#app.transfers.removeEventListener('uploaded', this.#uploaded);
  }

  #go(path) {
    if (path === this.#path) return;
    this.#read(path);
  }

  /** Reads a folder and, when it could be read, shows it. */
  async #read(path = this.#path) {
    if (this.#state !== 'running') return;
    this.#abort?.abort();
    const abort = this.#abort = new AbortController();
    this.#table.classList.add('stale');
    try {
      const entries = await this.#app.api.list(this.#id, path, abort.signal);
      if (abort.signal.aborted) return;
      const moved = path !== this.#path;
      this.#path = path;
      this.#entries = entries.sort((a, b) => b.is_dir - a.is_dir || byName.compare(a.name, b.name));
      setText(this.#problem, '');
      this.#show();
      if (moved) this.#arrive();
    } catch (err) {
      if (abort.signal.aborted) return;
      if (err.gone) return this.#app.gone(this.#id);
      setText(this.#problem, err.message);
      if (err.status === 404 && path === this.#path && path !== '/') this.#go(parent(path));
    } finally {
      if (this.#abort === abort) this.#table.classList.remove('stale');
    }
  }

  // The row that was pressed is gone with its folder.
  #arrive() {
    this.#table.scrollTop = 0;
    if (document.activeElement === document.body) (this.#list.querySelector('button') ?? this.#up).focus();
  }

  #show() {
    const able = this.#state === 'running';
    this.#up.disabled = !able || this.#path === '/';
    for (const action of this.#actions) action.disabled = !able;
    this.#trail.replaceChildren(...trail(this.#path).map(({ name, path }) => el('li', {},
      el('button', {
        type: 'button', text: printable(name), disabled: !able, 'aria-current': path === this.#path ? 'page' : false,
        on: { click: () => (path === this.#path ? this.#read() : this.#go(path)) },
      }))));
    this.#table.hidden = !this.#entries?.length;
    this.#empty.hidden = able && (!this.#entries || this.#entries.length > 0);
    if (!this.#empty.hidden) {
      this.#empty.replaceChildren(icon('folder'),
        el('h2', { text: able ? 'This folder is empty' : 'The sandbox is not running' }),
        el('p', { class: 'dim', text: able ? 'Drop files or folders here to bring them into the sandbox.' : 'Its files can be reached once it is.' }));
    }
    if (!this.#entries) return this.#list.replaceChildren();
    const now = this.#app.api.now();
    const held = document.activeElement?.closest?.('.files .row')?.dataset.name;
    this.#list.replaceChildren(...this.#entries.slice(0, MOST_ROWS).map((entry) => this.#row(entry, now)));
    if (held !== undefined) {
      [...this.#list.children].find((row) => row.dataset.name === held)?.querySelector('button')?.focus();
    }
    const more = this.#entries.length - MOST_ROWS;
    setText(this.#note, more > 0 ? `${more} more are not shown. Use a command to see them.` : '');
  }

  #row(entry, now) {
    const name = printable(entry.name);
    // Its bytes did not come through JSON, so no call can name it.
    const known = exact(entry.name);
    const folder = entry.is_dir;
    const open = () => (folder ? this.#go(entry.path) : entry.link ? this.#follow(entry) : this.#save(entry));
    const row = el('li', { class: 'row' },
      el('span', { class: 'cell name' }, icon(folder ? 'folder' : entry.link ? 'link' : 'file'),
        el('button', {
          type: 'button', class: 'open', disabled: !known, text: name,
          title: folder ? `Open ${name}` : entry.link ? `Follow ${name}` : `Download ${name}`, on: { click: open },
        }),
        entry.link && el('span', { class: 'dim target', text: `→ ${printable(entry.link)}` }),
        !known && el('span', { class: 'dim target', text: 'Its name is not UTF-8: rename it in the terminal, or download the folder' })),
      el('span', { class: 'cell number', text: folder || entry.link ? '' : size(entry.size) }),
      el('span', { class: 'cell', text: ago(entry.mtime, now), title: moment(entry.mtime) }),
      el('span', { class: 'cell tools' },
        known && !entry.link && button('download', '', () => this.#save(entry), { class: 'quiet', label: `Download ${name}` }),
        known && button('trash', '', () => this.#askRemove(entry), { class: 'quiet danger', label: `Delete ${name}` })));
    row.dataset.name = entry.name;
    return row;
  }

  #save(entry) {
    const { transfers, api } = this.#app;
    if (entry.is_dir) transfers.downloadFolder(api, this.#id, entry.path);
    else transfers.download(api, this.#id, entry);
  }

  /** A link leads to a folder, or to a file to download. */
  async #follow(entry) {
    try {
      await this.#app.api.list(this.#id, entry.path);
    } catch (err) {
      if (err.status === 404) setText(this.#problem, `${printable(entry.name)} leads nowhere: ${printable(entry.link)} does not exist.`);
      else this.#save(entry);
      return;
    }
    this.#go(entry.path);
  }

  async #askRemove(entry) {
    const name = printable(entry.name);
    const done = await openDialog({
      title: entry.is_dir ? 'Delete this folder?' : 'Delete this file?',
      body: [el('p', { class: 'mono', text: name }),
        el('p', { text: entry.is_dir ? 'It is deleted with everything in it. This cannot be undone.' : 'This cannot be undone.' })],
      verb: 'Delete',
      working: 'Deleting',
      danger: true,
      submit: async () => {
        try {
          await this.#app.api.removeFile(this.#id, entry.path, entry.is_dir);
        } catch (err) {
          if (err.status !== 404) throw err; // somebody else did
        }
      },
    });
    if (done) this.#read();
  }

  async #askFolder() {
    const folder = this.#path;
    const done = await openDialog({
      title: 'New folder',
      body: el('div', { class: 'field' }, el('label', { for: 'folder', text: 'Name' }),
        el('input', { type: 'text', id: 'folder', name: 'folder', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', autofocus: true })),
      verb: 'Create',
      working: 'Creating',
      submit: async (form) => {
        const name = form.get('folder');
        if (!name.trim() || name === '.' || name === '..') throw new Error('Enter a name.');
        if (name.includes('/')) throw new Error('A name has no slash in it.');
        if (this.#entries?.some((entry) => entry.name === name)) throw new Error('There is something of this name already.');
        await this.#app.api.makeFolder(this.#id, join(folder, name));
      },
    });
    if (done) this.#read();
  }

  #listenForDrops() {
    const holds = (event) => event.dataTransfer?.types.includes('Files');
    const show = (on) => {
      this.#over.hidden = !on;
      if (on) setText(this.#over, this.#state === 'running' ? `Drop to upload to ${printable(this.#path)}` : 'The sandbox is not running');
    };
    this.node.addEventListener('dragover', (event) => {
      if (!holds(event)) return;
      event.preventDefault(); // else the browser opens the file in place of the page
      event.dataTransfer.dropEffect = this.#state === 'running' ? 'copy' : 'none';
      show(true);
    });
    this.node.addEventListener('dragleave', (event) => {
      if (!this.node.contains(event.relatedTarget)) show(false);
    });
    this.node.addEventListener('drop', async (event) => {
      if (!holds(event)) return;
      event.preventDefault();
      show(false);
      if (this.#state !== 'running') return;
      try {
        await this.#send(await pickedFrom(event.dataTransfer));
      } catch {
        setText(this.#problem, 'Some of what was dropped could not be read. Nothing was uploaded.');
      }
    });
  }

  /** Uploads into the folder that is shown. What is there already is replaced only when the person says so. */
  async #send({ files, folders }) {
    const folder = this.#path;
    let there;
    try {
      there = new Set((await this.#app.api.list(this.#id, folder)).map((entry) => entry.name));
    } catch (err) {
      return setText(this.#problem, `Nothing was uploaded. ${err.message}`);
    }
    const top = (name) => name.split('/')[0];
    const taken = [...new Set([...files.map(({ name }) => top(name)), ...folders.map(top)])].filter((name) => there.has(name));
    const replace = taken.length && await openDialog({
      title: taken.length === 1 ? 'Replace it?' : `Replace ${taken.length} of them?`,
      body: [el('p', { text: taken.length === 1 ? 'There is something of this name already:' : 'There is something of these names already:' }),
        el('ul', { class: 'names mono' }, taken.slice(0, 8).map((name) => el('li', { text: printable(name) })),
          taken.length > 8 && el('li', { text: `and ${taken.length - 8} more` })),
        el('p', { class: 'dim', text: 'A file is replaced; into a folder, its files are put.' })],
      verb: 'Replace',
      cancel: taken.length === 1 ? 'Leave it out' : 'Leave them out',
      danger: true,
    });
    const wanted = (name) => replace || !taken.includes(top(name));
    const { transfers, api } = this.#app;
    for (const name of folders.filter(wanted)) transfers.makeFolder(api, this.#id, folder, name);
    for (const { name, file } of files.filter((one) => wanted(one.name))) transfers.upload(api, this.#id, folder, name, file);
  }
}
