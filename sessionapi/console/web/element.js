// Elements are made, never parsed: no string from a server becomes markup.

/**
 * Makes an element. Of props, `class` and `text` are what they say, `on` holds
 * listeners, and the rest are attributes; false and null leave one out.
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value == null) continue;
    if (name === 'class') node.className = value;
    else if (name === 'text') node.textContent = value;
    else if (name === 'on') for (const [type, fn] of Object.entries(value)) node.addEventListener(type, fn);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((c) => c != null && c !== false));
  return node;
}

/** Sets a node's text only when it differs, so that nothing is announced twice. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Drawn on a 16 by 16 grid with a stroke of the text's colour.
const SHAPES = {
  back: 'M10 3.5 5.5 8 10 12.5',
  browser: 'M2 3h12v10H2zM2 6h12M4 4.5h.01M6 4.5h.01',
  check: 'M3 8.5 6.5 12 13 4.5',
  clock: 'M8 2.2a5.8 5.8 0 1 1 0 11.6A5.8 5.8 0 1 1 8 2.2M8 4.8V8l2.2 1.6',
  close: 'M4 4l8 8M12 4l-8 8',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  cube: 'M8 1.8l5.5 3.1v6.2L8 14.2l-5.5-3.1V4.9zM2.7 5 8 8l5.3-3M8 8v6',
  download: 'M8 2.5v7.5M4.8 7 8 10.2 11.2 7M2.5 13.5h11',
  expand: 'M6 2.5H2.5V6M10 2.5h3.5V6M6 13.5H2.5V10M10 13.5h3.5V10',
  external: 'M9 2.5h4.5V7M13.5 2.5 7.5 8.5M11.5 9v4.5h-9v-9H7',
  file: 'M4 1.8h5l3 3v9.4H4zM9 1.8v3h3',
  folder: 'M2 3.5h4.2l1.4 1.8H14v7.5H2z',
  folderplus: 'M2 3.5h4.2l1.4 1.8H14v7.5H2zM8 7.2v3.8M6.1 9.1h3.8',
  link: 'M6.8 9.2a2.6 2.6 0 0 0 3.7 0l2.2-2.2a2.6 2.6 0 0 0-3.7-3.7l-.9.9M9.2 6.8a2.6 2.6 0 0 0-3.7 0L3.3 9a2.6 2.6 0 0 0 3.7 3.7l.9-.9',
  pause: 'M5.5 3.5v9M10.5 3.5v9',
  play: 'M5 3l7.5 5L5 13z',
  plug: 'M5.5 2v3.5M10.5 2v3.5M3.5 5.5h9V8a4.5 4.5 0 0 1-9 0zM8 12.5V14.5',
  plus: 'M8 3v10M3 8h10',
  reload: 'M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3',
  signout: 'M6.5 2.5h-4v11h4M10 5l3 3-3 3M13 8H6',
  stop: 'M4 4h8v8H4z',
  terminal: 'M2 3h12v10H2zM4.5 6l2 2-2 2M8.5 10h3',
  trash: 'M2.5 4.5h11M6 4.5v-2h4v2M4 4.5l.6 9h6.8l.6-9M6.6 7v4M9.4 7v4',
  up: 'M8 13V3.5M3.8 7.5 8 3.3l4.2 4.2',
  upload: 'M8 10.5V3M4.8 6 8 2.8 11.2 6M2.5 13.5h11',
  warning: 'M8 2.2 14.5 13.5h-13zM8 6.5v3.2M8 11.6h.01',
};

const SVG = 'http://www.w3.org/2000/svg';

/** An icon. It is decoration: the control around it has the words. */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', SHAPES[name]);
  svg.append(path);
  return svg;
}

/** A button with an icon and words; without words, label names it. */
export function button(name, words, onclick, props = {}) {
  return el('button', {
    type: 'button', ...props, class: `button ${props.class ?? ''} ${words ? '' : 'square'}`.trim(),
    title: words ? props.title : props.label, 'aria-label': words ? null : props.label, label: null,
    on: { click: onclick, ...props.on },
  }, name && icon(name), words && el('span', { text: words }));
}

/** Puts text on the clipboard and says whether it is there. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { /* refused, or a page that came over plain HTTP, which has no clipboard */ }
  const held = document.activeElement;
  const place = document.querySelector('dialog[open]') ?? document.body;
  const field = el('textarea', { class: 'hidden', 'aria-hidden': 'true', tabindex: '-1' });
  field.value = text;
  place.append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  held?.focus();
  return done;
}

const SAID_FOR = 1800;

/** A button that copies what text() gives and says so; with words it shows them. */
export function copyButton(label, text, words = '') {
  const node = button('copy', words, async () => {
    const done = await copyText(text());
    clearTimeout(timer);
    node.firstChild.replaceWith(icon(done ? 'check' : 'warning'));
    if (words) setText(node.lastChild, done ? 'Copied' : 'Not copied');
    setText(said, done ? 'Copied' : 'The browser did not let it be copied');
    timer = setTimeout(() => {
      node.firstChild.replaceWith(icon('copy'));
      if (words) setText(node.lastChild, words);
      setText(said, '');
    }, SAID_FOR);
  }, words ? { title: label } : { class: 'quiet', label });
  let timer = 0;
  const said = el('span', { class: 'hidden', role: 'status' });
  return el('span', { class: 'copy' }, node, said);
}

/** A bar that says work goes on, with the seconds it has taken. */
export function progress(words) {
  const since = Date.now();
  const seconds = el('span', { class: 'dim number' });
  const node = el('div', { class: 'progress' },
    el('div', { class: 'track' }, el('div', { class: 'runner' })),
    el('p', { role: 'status' }, words), seconds);
  node.tick = () => {
    const n = Math.round((Date.now() - since) / 1000);
    setText(seconds, n ? `${n} s` : '');
  };
  return node;
}
