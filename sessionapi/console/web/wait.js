// Waiting, with an end.

const BACKOFF_MS = [400, 1000, 2000, 4000, 8000, 15000];
const LONGEST_MS = 30000;

/** Waits for a time, or until signal is aborted. */
export function rest(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

/** Waits before the try after the nth failure in a row; longer when the API asked for it. */
export function backOff(n, failure, signal) {
  const ms = BACKOFF_MS[Math.min(n, BACKOFF_MS.length - 1)];
  return rest(Math.min(Math.max(ms, (failure?.retryAfter ?? 0) * 1000), LONGEST_MS), signal);
}

/** Resolves once the page is looked at, or signal is aborted. */
export function seen(signal) {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener('visibilitychange', check);
      resolve();
    };
    document.addEventListener('visibilitychange', check);
    signal.addEventListener('abort', check, { once: true });
  });
}
