// Files on their way up and down. They go on while the person looks at
// something else, and what failed stays until it is tried again or dismissed.

import { openSink } from './download.js';
import { button, el, icon, setText } from './element.js';
import { join, printable, saveable, size } from './names.js';
import { upload } from './upload.js';

const AT_ONCE = 2;
const SHOWN_FOR = 4000;

/** One file on its way: how far it is, and what became of it. */
class Transfer {
  #bar = el('progress', { max: 1, value: 0 });
  #words = el('span', { class: 'dim number' });
  #again;
  #stop;
  #shown = 0;
  abort = new AbortController();
  state = 'waiting';

  /** work(transfer) does it, and throws what went wrong. */
  constructor(shape, name, total, work, tray) {
    this.name = printable(name);
    this.total = total;
    this.work = work;
    this.done = 0;
    this.#bar.setAttribute('aria-label', this.name);
    this.#again = button('reload', '', () => tray.again(this), { class: 'quiet', label: `Try ${this.name} again` });
    this.#stop = button('close', '', () => tray.drop(this), { class: 'quiet', label: `Cancel ${this.name}` });
    this.node = el('li', { class: 'transfer' }, icon(shape),
      el('span', { class: 'name', title: this.name, text: this.name }),
      this.#words, el('span', { class: 'tools' }, this.#again, this.#stop), this.#bar);
    this.show('waiting');
  }

  show(state, why = '') {
    this.state = state;
    this.node.dataset.state = state;
    this.#again.hidden = state !== 'failed';
    this.#bar.hidden = state !== 'going';
    this.#stop.title = this.#stop.ariaLabel = `${state === 'failed' ? 'Dismiss' : 'Cancel'} ${this.name}`;
    const words = { waiting: 'Waiting', done: `${size(this.done)}, done`, failed: why }[state];
    if (words !== undefined) setText(this.#words, words);
    if (state === 'going') this.progress(this.done, this.total);
  }

  /** Tells how many bytes went of how many; total is below 0 when nobody knows. */
  progress(done, total) {
    this.done = done;
    this.total = total;
    const now = performance.now();
    if (now - this.#shown < 100 && done !== total) return;
    this.#shown = now;
    if (total > 0) this.#bar.value = done / total;
    else if (total < 0) this.#bar.removeAttribute('value');
    setText(this.#words, total < 0 ? size(done) : `${size(done)} of ${size(total)}`);
  }
}

/** The tray of transfers. It dispatches "uploaded" with {sandbox, folder} for each file that arrived. */
export class Transfers extends EventTarget {
  #list = el('ul', {});
  #title = el('h3', { role: 'status' });
  #all = new Set();

  constructor() {
    super();
    this.node = el('section', { class: 'tray', 'aria-label': 'Transfers' }, el('header', {}, this.#title), this.#list);
    this.#show();
    window.addEventListener('beforeunload', (event) => {
      if (this.#going()) event.preventDefault(); // asks whether to leave
    });
  }

  /** Uploads a file into a folder of a sandbox; name may lead into folders below. */
  upload(api, sandbox, folder, name, file) {
    const path = join(folder, name);
    this.#add(new Transfer('upload', name, file.size, async (one) => {
      await upload(api, api.fileAddress(sandbox, path), file, (sent) => one.progress(sent, file.size), one.abort.signal);
      one.done = file.size;
      this.dispatchEvent(new CustomEvent('uploaded', { detail: { sandbox, folder } }));
    }, this));
  }

  /** Makes a folder that was dropped: one with nothing in it is not made by its files. */
  makeFolder(api, sandbox, folder, name) {
    this.#add(new Transfer('folder', name, 0, async () => {
      await api.makeFolder(sandbox, join(folder, name));
      this.dispatchEvent(new CustomEvent('uploaded', { detail: { sandbox, folder } }));
    }, this));
  }

  /** Saves a file of a sandbox. */
  async download(api, sandbox, entry) {
    const sink = await openSink(saveable(entry.name));
    if (!sink) return;
    this.#save(sink, entry, async (one, open) => {
      for await (const { chunk, size: total } of api.read(sandbox, entry.path, one.abort.signal)) {
        await open().write(chunk);
        one.progress(one.done + chunk.length, total);
      }
    });
  }

  /** Saves a folder of a sandbox as a tar archive. */
  async downloadFolder(api, sandbox, path) {
    const name = `${saveable(path.slice(path.lastIndexOf('/') + 1) || 'root')}.tar`;
    const sink = await openSink(name);
    if (!sink) return;
    this.#save(sink, { name, path }, async (one, open) => {
      const { signal } = one.abort;
      const reader = (await api.archive(sandbox, path, signal)).body.getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        await open().write(value);
        one.progress(one.done + value.length, -1);
      }
    });
  }

  // A sink that was given up is of no more use: another try asks where to save again.
  #save(first, { name }, copy) {
    let sink = first;
    this.#add(new Transfer('download', name, -1, async (one) => {
      sink ??= await openSink(saveable(name));
      if (!sink) throw new DOMException('stopped', 'AbortError');
      try {
        await copy(one, () => sink);
        await sink.close();
      } catch (err) {
        sink.abort();
        sink = null;
        if (err instanceof TypeError) throw new Error('The connection broke. Try again.', { cause: err });
        throw err;
      }
    }, this));
  }

  /** Tries a transfer that failed again. */
  again(one) {
    one.abort = new AbortController();
    one.done = 0;
    one.show('waiting');
    this.#next();
  }

  /** Stops a transfer, or takes one out that ended. */
  drop(one) {
    one.abort.abort();
    const held = one.node.contains(document.activeElement);
    const next = one.node.nextElementSibling ?? one.node.previousElementSibling;
    this.#all.delete(one);
    one.node.remove();
    if (held) (next?.querySelector('button:not([hidden])') ?? document.getElementById('main')).focus();
    this.#next();
  }

  /** Stops all of them. */
  clear() {
    for (const one of [...this.#all]) this.drop(one);
  }

  #add(one) {
    this.#all.add(one);
    this.#list.append(one.node);
    this.#next();
  }

  #going() {
    return [...this.#all].filter((one) => one.state === 'going' || one.state === 'waiting').length;
  }

  #next() {
    const going = [...this.#all].filter((one) => one.state === 'going').length;
    const waiting = [...this.#all].filter((one) => one.state === 'waiting');
    for (const one of waiting.slice(0, Math.max(0, AT_ONCE - going))) this.#run(one);
    this.#show();
  }

  async #run(one) {
    const { signal } = one.abort;
    one.show('going');
    try {
      await one.work(one);
      one.show('done');
      setTimeout(() => { if (one.state === 'done' && this.#all.has(one)) this.drop(one); }, SHOWN_FOR);
    } catch (err) {
      if (signal.aborted || err.name === 'AbortError') {
        this.#all.delete(one);
        one.node.remove();
      } else {
        one.show('failed', err.message);
      }
    }
    this.#next();
  }

  #show() {
    const left = this.#going();
    const failed = [...this.#all].filter((one) => one.state === 'failed').length;
    this.node.hidden = !this.#all.size;
    setText(this.#title, [left && `${left} to go`, failed && `${failed} failed`].filter(Boolean).join(', ') || 'Done');
  }
}

/** What was dropped or chosen, as {files: [{name, file}], folders: [name]}. Folders are walked. */
export async function pickedFrom(transfer) {
  // The items are only there until the first wait.
  const entries = [...transfer.items].filter((item) => item.kind === 'file')
    .map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile());
  const picked = { files: [], folders: [] };
  for (const entry of entries) await walk(entry, '', picked);
  return picked;
}

async function walk(entry, below, picked) {
  if (!entry) return;
  const name = below + entry.name;
  if (entry instanceof File) {
    picked.files.push({ name, file: entry });
  } else if (entry.isFile) {
    picked.files.push({ name, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
  } else {
    const reader = entry.createReader();
    let empty = true;
    for (;;) { // it gives them a hundred at a time
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) break;
      empty = false;
      for (const one of some) await walk(one, `${name}/`, picked);
    }
    if (empty) picked.folders.push(name);
  }
}

