// What this tab ran: the API knows commands by id, not by what was typed.

const NAME = 'cubepod.commands';
const MOST = 100;

function read() {
  try { return JSON.parse(sessionStorage.getItem(NAME)) ?? []; } catch { return []; }
}

function write(entries) {
  try { sessionStorage.setItem(NAME, JSON.stringify(entries)); } catch { /* storage is refused or full */ }
}

/** Remembers what was typed for a command of a sandbox. */
export function remember(sandbox, id, command) {
  write([...read(), [sandbox, id, command]].slice(-MOST));
}

/** What was typed for it, or ''. */
export function recall(sandbox, id) {
  return read().find((entry) => entry[0] === sandbox && entry[1] === id)?.[2] ?? '';
}

/** Forgets everything, with the key. */
export function forgetCommands() {
  try { sessionStorage.removeItem(NAME); } catch { /* there is nothing then */ }
}
