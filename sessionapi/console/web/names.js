// Names and paths of files, which may hold any character but "/" and NUL.

// What would change how the rest of the text is shown: control characters, and
// the marks that turn its direction.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A name as it can be shown: on one line, and with nothing hidden in it, as JavaScript writes it. */
export function printable(name) {
  return String(name ?? '').replace(INVISIBLE, (c) => {
    const hex = c.charCodeAt(0).toString(16).padStart(4, '0');
    return { '\n': '\\n', '\r': '\\r', '\t': '\\t' }[c] ?? `\\u${hex}`;
  });
}

/** Whether the name came through JSON as it is. Bytes that are no UTF-8 do not. */
export function exact(name) {
  return !name.includes('\ufffd');
}

/** A name to save under on the person's own machine, where fewer characters are allowed. */
export function saveable(name) {
  return name.replace(INVISIBLE, '_').replace(/[/\\:*?"<>|]/g, '_').replace(/^[. ]+|[. ]+$/g, '_') || 'file';
}

/** dir and name as one path. */
export function join(dir, name) {
  return dir.endsWith('/') ? dir + name : `${dir}/${name}`;
}

/** The folder that path is in; "/" is in itself. */
export function parent(path) {
  return path.slice(0, path.lastIndexOf('/')) || '/';
}

/** The folders from "/" down to path: [{name, path}]. */
export function trail(path) {
  const steps = [{ name: '/', path: '/' }];
  let at = '';
  for (const name of path.split('/').filter(Boolean)) {
    at += `/${name}`;
    steps.push({ name, path: at });
  }
  return steps;
}

const SIZES = ['bytes', 'KB', 'MB', 'GB', 'TB'];

/** "812 bytes", "4.2 KB", "1.3 GB". */
export function size(bytes) {
  let n = bytes;
  let unit = 0;
  while (n >= 999.5 && unit < SIZES.length - 1) {
    n /= 1000;
    unit++;
  }
  if (!unit) return bytes === 1 ? '1 byte' : `${bytes} bytes`;
  return `${n < 9.95 ? n.toFixed(1) : Math.round(n)} ${SIZES[unit]}`;
}
