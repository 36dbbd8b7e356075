// Sending one file. XMLHttpRequest streams it from the disk and tells how far it is; fetch does not.

import { Failure, failureOf, unreachable } from './failure.js';
import { backOff } from './wait.js';

const TRIES = 5;

/**
 * Sends a file to address, and again after a broken connection: the API takes
 * a file whole or not at all. sent() is told how many bytes went out.
 */
export async function upload(api, address, file, sent, signal) {
  for (let n = 0; ; n++) {
    try {
      return await send(api, address, file, sent, signal);
    } catch (err) {
      if (signal.aborted || !err.passing || n === TRIES - 1) throw err;
      await readable(file);
      sent(0);
      await backOff(n, err, signal);
    }
  }
}

/** A file that was moved or changed here fails like a broken connection, and would for ever. */
async function readable(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch {
    throw new Failure(400, 'file_unreadable', 'The file can no longer be read: it was moved or changed. Choose it again.');
  }
}

function send(api, address, file, sent, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const abort = () => request.abort();
    const end = (settle, value) => {
      signal.removeEventListener('abort', abort);
      settle(value);
    };
    request.open('PUT', address);
    for (const [name, value] of Object.entries(api.headers)) request.setRequestHeader(name, value);
    request.setRequestHeader('Content-Type', 'application/octet-stream');
    request.upload.onprogress = (event) => sent(event.loaded);
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) return end(resolve);
      const failure = failureOf(request.status, request.responseText, request.getResponseHeader('Retry-After'));
      if (request.status === 401) api.refused(failure);
      end(reject, failure);
    };
    request.onerror = () => end(reject, unreachable());
    request.onabort = () => end(reject, new DOMException('stopped', 'AbortError'));
    if (signal.aborted) return end(reject, new DOMException('stopped', 'AbortError'));
    signal.addEventListener('abort', abort);
    request.send(file);
  });
}
