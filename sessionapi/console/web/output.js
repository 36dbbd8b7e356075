// The output of a command as text on the page.

import { el } from './element.js';

// Escape sequences that programs write for terminals: CSI, OSC, and the rest.
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])/g;
const UNFINISHED = /\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[ -/]*)?$/;
const LONGEST_ESCAPE = 4096;
const LONGEST_LINE = 1 << 16;

// What is kept. A browser takes seconds to lay out a hundred thousand lines.
const MOST_LINES = 5000;
const MOST_CHARACTERS = 400_000;
const GROUP = 100;

/**
 * Output shows text that grows. Colours are dropped, and a carriage return goes
 * back to the start of the line, as progress bars expect. It follows the end
 * while the end is in view, and keeps the last few thousand lines.
 */
export class Output {
  #pre;
  #lines = el('span');
  #last = el('span');
  #cut = el('p', { class: 'cut', hidden: true, text: 'Earlier output is not shown.' });
  #line = '';
  #return = false;
  #held = '';
  #groups = []; // the text nodes below #lines: {node, lines}
  #count = 0;
  #length = 0;

  constructor(label) {
    this.#pre = el('pre', { tabindex: '0', role: 'log', 'aria-live': 'off', 'aria-label': label }, this.#lines, this.#last);
    this.node = el('div', { class: 'output' }, this.#cut, this.#pre);
  }

  /** Everything that is shown. */
  get text() { return this.#pre.textContent; }

  append(chunk) {
    if (!chunk) return;
    const follow = this.node.scrollHeight - this.node.scrollTop - this.node.clientHeight < 40;
    let text = this.#held + chunk;
    const tail = UNFINISHED.exec(text);
    this.#held = tail && tail[0].length < LONGEST_ESCAPE ? tail[0] : '';
    text = text.slice(0, text.length - this.#held.length).replace(ESCAPES, '');

    const parts = text.split('\n');
    const done = [];
    parts.forEach((part, n) => {
      this.#write(part);
      if (n < parts.length - 1) {
        done.push(this.#line);
        this.#line = '';
        this.#return = false;
      }
    });
    if (this.#line.length > LONGEST_LINE) {
      done.push(this.#line);
      this.#line = '';
    }
    this.#push(done);
    this.#last.textContent = this.#line;
    if (follow) this.node.scrollTop = this.node.scrollHeight;
  }

  /** Says that some output is missing before what is shown. */
  cut() { this.#cut.hidden = false; }

  // Writes into the current line. A return takes effect with the next text, so
  // that "\r\n" ends a line instead of emptying it.
  #write(part) {
    for (const [n, piece] of part.split('\r').entries()) {
      if (n > 0) this.#return = true;
      if (!piece) continue;
      this.#line = this.#return ? piece + this.#line.slice(piece.length) : this.#line + piece;
      this.#return = false;
    }
  }

  #push(lines) {
    if (lines.length > MOST_LINES) {
      lines = lines.slice(-MOST_LINES);
      this.cut();
    }
    for (let n = 0; n < lines.length; n += GROUP) {
      const group = lines.slice(n, n + GROUP);
      const node = document.createTextNode(group.join('\n') + '\n');
      this.#lines.append(node);
      this.#groups.push({ node, lines: group.length });
      this.#count += group.length;
      this.#length += node.length;
    }
    while (this.#groups.length > 1 && (this.#count > MOST_LINES || this.#length > MOST_CHARACTERS)) {
      const { node, lines: gone } = this.#groups.shift();
      this.#count -= gone;
      this.#length -= node.length;
      node.remove();
      this.cut();
    }
  }
}
