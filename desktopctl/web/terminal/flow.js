const PAUSE = '2';
const RESUME = '3';

const HIGH = 1 << 20; // characters not drawn yet
const LOW = 1 << 17;
const POLL = 20;

// Flow writes to a terminal and holds up the sandbox while that cannot keep
// up: a socket in a browser takes whatever comes, and the tab would swell.
export class Flow {
  constructor(term, send) {
    this.term = term;
    this.send = send;
    this.pending = 0;
    this.paused = false;
    this.calls = term.write.length > 1; // xterm.js 4 and later call back
  }

  write(text) {
    if (!text) return;
    this.pending += text.length;
    if (this.calls) {
      this.term.write(text, () => this.drawn(this.pending - text.length));
    } else {
      this.term.write(text);
      this.poll();
    }
    if (this.pending > HIGH && !this.paused) {
      this.paused = true;
      this.send(PAUSE);
    }
  }

  drawn(pending) {
    this.pending = pending;
    if (this.paused && pending < LOW) {
      this.paused = false;
      this.send(RESUME);
    }
  }

  // poll looks at what xterm.js 3 has in its buffer.
  poll() {
    if (this.polling) return;
    this.polling = setTimeout(() => {
      this.polling = 0;
      const waiting = this.term._core.writeBuffer.reduce((sum, text) => sum + text.length, 0);
      this.drawn(waiting);
      if (waiting > 0) this.poll();
    }, POLL);
  }

  end() {
    clearTimeout(this.polling);
    this.paused = false;
  }
}
