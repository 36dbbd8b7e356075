// The API key: in this tab's session storage, or in local storage when the
// person asked to be remembered. Both belong to this origin alone; panels are
// of another one. A browser that refuses storage keeps the key in memory.

const NAME = 'cubepod.key';

let held = '';

function read(store) {
  try { return window[store].getItem(NAME) ?? ''; } catch { return ''; }
}

function write(store, key) {
  try {
    if (key) window[store].setItem(NAME, key);
    else window[store].removeItem(NAME);
  } catch { /* storage is refused: held has it */ }
}

/** The key, or ''. */
export function currentKey() {
  return held || read('sessionStorage') || read('localStorage');
}

/** Keeps the key for this tab or, with remember, for this browser. */
export function keepKey(key, remember) {
  held = key;
  write('sessionStorage', remember ? '' : key);
  write('localStorage', remember ? key : '');
}

/** Forgets the key everywhere. */
export function forgetKey() {
  held = '';
  write('sessionStorage', '');
  write('localStorage', '');
}

/**
 * Takes the key out of an address like /#key=…, which `make run` prints, and
 * removes it from the address bar and the history entry. Says whether there
 * was one.
 */
export function takeKeyFromAddress() {
  const found = /^#key=(.*)$/s.exec(location.hash);
  if (!found) return false;
  history.replaceState(null, '', location.pathname + location.search);
  let key = found[1];
  try { key = decodeURIComponent(key); } catch { /* it was not encoded */ }
  key = key.trim();
  if (!key) return false;
  held = key;
  write('sessionStorage', key);
  return true;
}
