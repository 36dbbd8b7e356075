// The terminal's page: xterm.js over ttyd's protocol. It runs with xterm.js 3,
// which Debian 12 has, and with the later ones.
import { Terminal } from 'xterm';
import { Bar } from '../shared/bar.js';
import { Link, looksOnly, socketURL } from '../shared/link.js';
import { TextInput } from '../shared/textinput.js';
import { follow } from './cursor.js';
import { fit } from './fit.js';
import { Flow } from './flow.js';

const INPUT = '0';
const RESIZE = '1';
const OUTPUT = '0'.charCodeAt(0);
const TITLE = '1'.charCodeAt(0);
const SETTINGS = '2'.charCodeAt(0);

const MAX_INPUT = 16384; // bytes a message; a long paste becomes many
const MAX_QUEUE = 1 << 20;

const box = document.getElementById('terminal');
const viewOnly = looksOnly();
document.body.dataset.mode = viewOnly ? 'view' : 'control';
const term = new Terminal({
  cursorBlink: !viewOnly,
  disableStdin: viewOnly,
  fontFamily:
    '"JetBrains Mono", "Cascadia Mono", "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", ' +
    '"Noto Sans Mono CJK SC", "Noto Sans CJK SC", "WenQuanYi Zen Hei Mono", "Noto Color Emoji", monospace',
  fontSize: 14,
  scrollback: 10000,
  macOptionIsMeta: true,
  theme: {
    background: '#16181d',
    foreground: '#d7dae0',
    cursor: '#d7dae0',
    cursorAccent: '#16181d',
    selection: 'rgba(122, 162, 247, 0.35)', // its name in xterm.js 3 and 4
    selectionBackground: 'rgba(122, 162, 247, 0.35)',
    black: '#2a2e37', red: '#f7768e', green: '#9ece6a', yellow: '#e0af68',
    blue: '#7aa2f7', magenta: '#bb9af7', cyan: '#7dcfff', white: '#c0c5d1',
    brightBlack: '#646b7a', brightRed: '#ff9cac', brightGreen: '#b9e58a', brightYellow: '#f2cb8a',
    brightBlue: '#a1bdff', brightMagenta: '#d3bbff', brightCyan: '#a9e1ff', brightWhite: '#ffffff',
  },
});
term.open(box);

const encoder = new TextEncoder();
const bar = new Bar(document.getElementById('bar'));
if (viewOnly) bar.watching();
const link = new Link(bar, open);
let socket = null; // while it is open
let queue = []; // typed before that
let queued = 0;

function open() {
  const ws = new WebSocket(socketURL('ws'), ['tty']);
  ws.binaryType = 'arraybuffer';
  const decoder = new TextDecoder();
  const flow = new Flow(term, (type) => ws.readyState === WebSocket.OPEN && ws.send(encoder.encode(type)));
  ws.onopen = () => {
    fit(term, box);
    ws.send(encoder.encode(JSON.stringify({ AuthToken: '', columns: term.cols, rows: term.rows })));
    socket = ws;
    for (const message of queue) ws.send(message);
    queue = [];
    queued = 0;
  };
  ws.onmessage = ({ data }) => {
    const bytes = new Uint8Array(data);
    switch (bytes[0]) {
      case OUTPUT:
        link.opened(); // not before: the shell may fail to start
        flow.write(decoder.decode(bytes.subarray(1), { stream: true }));
        break;
      case TITLE:
        document.title = new TextDecoder().decode(bytes.subarray(1));
        break;
      case SETTINGS: {
        // ttyd's own title is the command that it runs.
        const { titleFixed } = JSON.parse(new TextDecoder().decode(bytes.subarray(1)));
        if (titleFixed) document.title = titleFixed;
        break;
      }
    }
  };
  ws.onclose = () => {
    socket = null;
    flow.end();
    link.closed();
  };
}

function send(type, bytes) {
  for (let at = 0; at < bytes.length; at += MAX_INPUT) {
    const part = bytes.subarray(at, at + MAX_INPUT);
    const message = new Uint8Array(1 + part.length);
    message[0] = type.charCodeAt(0);
    message.set(part, 1);
    if (socket) {
      socket.send(message);
    } else if (type === INPUT && queued + message.length <= MAX_QUEUE) {
      queue.push(message);
      queued += message.length;
    }
  }
}

function typed(text) {
  if (!viewOnly) send(INPUT, encoder.encode(text));
}

if (term.onData) {
  term.onData(typed);
  // Old-style mouse reports are bytes and no text.
  term.onBinary?.((text) => send(INPUT, Uint8Array.from(text, (c) => c.charCodeAt(0))));
} else {
  term.on('data', typed);
}

// xterm.js knows input methods in its own way, and loses or doubles text that
// comes otherwise or quickly, more so in its older versions.
if (!viewOnly) {
  new TextInput(term.textarea, {
    text: (text) => typed(text.replace(/\r?\n/g, '\r')),
    erase: (count) => typed('\x7f'.repeat(count)),
    begin: () => follow(term, box, term.textarea),
  });
}

// Ctrl+Shift+C copies, Ctrl+Shift+V pastes, as in other terminals: Ctrl+C and
// Ctrl+V belong to the shell. Pasting is left to the browser.
term.attachCustomKeyEventHandler((event) => {
  if (event.type !== 'keydown' || !event.ctrlKey || !event.shiftKey) return true;
  if (event.code === 'KeyC') {
    event.preventDefault();
    if (term.hasSelection()) {
      navigator.clipboard?.writeText(term.getSelection()).catch(() => document.execCommand('copy'));
    }
    return false;
  }
  return event.code !== 'KeyV';
});

function refit() {
  if (fit(term, box) && !viewOnly) {
    send(RESIZE, encoder.encode(JSON.stringify({ columns: term.cols, rows: term.rows })));
  }
}

new ResizeObserver(() => requestAnimationFrame(refit)).observe(box);
document.fonts?.ready.then(refit);
fit(term, box);
link.start();
