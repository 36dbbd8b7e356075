// What a call that did not succeed says.

/** A call that did not succeed. status is 0 when the API was not reached. */
export class Failure extends Error {
  constructor(status, code, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }

  /** The sandbox does not exist, or no longer. */
  get gone() {
    return this.status === 410 || this.code === 'sandbox_not_found';
  }

  /** The same call may well succeed a little later. */
  get passing() {
    return this.status === 0 || this.status === 429 || this.status === 503;
  }
}

/** The failure of an API that was not reached. */
export function unreachable() {
  return new Failure(0, 'unreachable', 'The API cannot be reached. Check the network and that it runs.');
}

/** Turns an API message into a sentence: "no room" becomes "No room." */
export function sentence(text) {
  const s = String(text ?? '').trim();
  if (!s) return 'Something went wrong.';
  return s[0].toUpperCase() + s.slice(1) + (/[.!?…]$/.test(s) ? '' : '.');
}

/** The failure that an answer tells of: its status, its text and its Retry-After. */
export function failureOf(status, text, retryAfter) {
  let body = null;
  try { body = JSON.parse(text); } catch { /* a proxy's own page */ }
  const message = body?.message || body?.error || `the API answered ${status}`;
  return new Failure(status, body?.error ?? 'unexpected_response', sentence(message), Number(retryAfter) || 0);
}
