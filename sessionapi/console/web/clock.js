// Times in words.

const UNITS = [[86400, 'd', 'day'], [3600, 'h', 'hour'], [60, 'min', 'minute'], [1, 's', 'second']];

/** The largest unit and, for days and hours, the next if it says something: [[3, unit], [20, unit]]. */
function parts(seconds) {
  const total = Math.max(0, Math.floor(seconds));
  const first = UNITS.findIndex(([size]) => total >= size);
  if (first < 0) return [[0, UNITS.at(-1)]];
  const unit = UNITS[first];
  const out = [[Math.floor(total / unit[0]), unit]];
  const next = UNITS[first + 1];
  const rest = next && first < 2 ? Math.floor((total % unit[0]) / next[0]) : 0;
  if (rest) out.push([rest, next]);
  return out;
}

/** "45 s", "12 min", "3 h 20 min", "2 d 4 h". */
export function duration(seconds) {
  return parts(seconds).map(([n, [, short]]) => `${n} ${short}`).join(' ');
}

/** "45 seconds", "1 minute", "3 hours 20 minutes". */
export function span(seconds) {
  return parts(seconds).map(([n, [, , name]]) => `${n} ${name}${n === 1 ? '' : 's'}`).join(' ');
}

// A server's "no time yet" is the year 1.
function parse(time) {
  const at = typeof time === 'number' ? time : Date.parse(time ?? '');
  return at > 0 ? at : null;
}

/** "3 minutes ago", or '' when the time is not known. It takes RFC 3339 or milliseconds. */
export function ago(time, now) {
  const at = parse(time);
  if (!at) return '';
  const seconds = (now - at) / 1000;
  return seconds < 5 ? 'just now' : `${parts(seconds).slice(0, 1).map(([n, [, , name]]) => `${n} ${name}${n === 1 ? '' : 's'}`)} ago`;
}

/** "in 2 hours 5 minutes", "now", or '' when the time is not known. */
export function until(time, now) {
  const left = secondsLeft(time, now);
  if (left === null) return '';
  return left ? `in ${span(left)}` : 'now';
}

/** Seconds until a time, or null. */
export function secondsLeft(time, now) {
  const at = parse(time);
  return at ? Math.max(0, Math.floor((at - now) / 1000)) : null;
}

/** The time in the person's own form, for titles. */
export function moment(time) {
  const at = parse(time);
  return at ? new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' }) : '';
}

/** The same without the day when it is today. */
export function clockTime(time, now) {
  const at = new Date(parse(time) ?? 0);
  const today = at.toDateString() === new Date(now).toDateString();
  return at.toLocaleString(undefined, today ? { timeStyle: 'short' } : { dateStyle: 'medium', timeStyle: 'short' });
}
