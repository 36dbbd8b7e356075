// Times in words.

const UNITS = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];

/** "45 s", "12 min", "3 h 20 min", "2 d 4 h": the largest unit and, if it says something, the next. */
export function duration(seconds) {
  const total = Math.max(0, Math.floor(seconds));
  const first = UNITS.findIndex(([size]) => total >= size);
  if (first < 0) return '0 s';
  const [size, name] = UNITS[first];
  const words = [`${Math.floor(total / size)} ${name}`];
  const next = UNITS[first + 1];
  if (next && first < 2) {
    const rest = Math.floor((total % size) / next[0]);
    if (rest) words.push(`${rest} ${next[1]}`);
  }
  return words.join(' ');
}

// A server's "no time yet" is the year 1.
function parse(time) {
  const at = Date.parse(time ?? '');
  return at > 0 ? at : null;
}

/** How long ago an RFC 3339 time was, or ''. */
export function age(time, now) {
  const at = parse(time);
  return at ? duration((now - at) / 1000) : '';
}

/** Seconds until an RFC 3339 time, or null. */
export function secondsLeft(time, now) {
  const at = parse(time);
  return at ? Math.max(0, Math.floor((at - now) / 1000)) : null;
}

/** The time in the person's own form, for titles. */
export function moment(time) {
  const at = parse(time);
  return at ? new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' }) : '';
}
