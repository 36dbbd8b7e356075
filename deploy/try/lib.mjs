// What the tries share: the API of a running stack, a sandbox's programs, a
// person's browser, and how a try ends.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import tls from 'node:tls';
import { chromium } from 'playwright-core';

export const facts = JSON.parse(readFileSync(process.env.CUBEPOD_DEV, 'utf8'));
export const data = path.dirname(process.env.CUBEPOD_DEV);

const endings = []; // what to undo, last first

/** defer has f called when the try ends. */
export const defer = f => endings.push(f);

/** Skip ends a try that this machine cannot run. */
export class Skip extends Error {}

/** attempt runs a try and says how it ended. */
export async function attempt(name, f) {
  const bound = setTimeout(() => { console.log(`${name}: failed: it takes longer than five minutes`); process.exit(1); }, 300_000);
  try {
    const note = await f();
    console.log(`${name}: works${note ? ` (${note})` : ''}`);
  } catch (e) {
    const skipped = e instanceof Skip;
    console.log(`${name}: ${skipped ? 'skipped' : 'failed'}: ${hidden(e.message)}`);
    process.exitCode = skipped ? 0 : 1;
  }
  for (const end of endings.reverse()) await Promise.resolve(end()).catch(e => console.error(hidden(`${name}: ${e.message}`)));
  clearTimeout(bound);
}

/** hidden takes tokens out of what is printed. */
export const hidden = s => s.replaceAll(/\/panel\/[^/\s"']+/g, '/panel/…');

export function check(good, message) {
  if (!good) throw new Error(message);
}

/** until asks f again until it gives something, for at most a minute. */
export async function until(what, f) {
  let last;
  for (const end = Date.now() + 60_000; Date.now() < end;) {
    try {
      const got = await f();
      if (got) return got;
    } catch (e) { last = e; }
    await new Promise(r => setTimeout(r, 200));
  }
  throw new Error(`${what}: not within a minute${last ? `: ${last.message}` : ''}`);
}

/** api calls the session API; body is JSON, or bytes. */
export async function api(method, where, body) {
  const json = body !== undefined && !(body instanceof Uint8Array);
  const resp = await fetch(facts.apiUrl + where, {
    method, body: json ? JSON.stringify(body) : body,
    headers: { 'X-API-Key': facts.apiKey, ...(json && { 'Content-Type': 'application/json' }) },
  });
  const text = await resp.text();
  check(resp.ok, `${method} ${where}: ${resp.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

const sandbox = `/sandboxes/${facts.sandboxID}`;

/** sh runs a command in the sandbox and gives its output. */
export async function sh(command) {
  const r = await api('POST', `${sandbox}/commands/run`, { command });
  check(r.exit_code === 0, `${command}: exit ${r.exit_code}: ${r.output}`);
  return r.output;
}

/** serve runs a server in the sandbox until the try ends. */
export async function serve(command, workdir = '/workspace') {
  const { id } = await api('POST', `${sandbox}/commands/run`, { command, workdir, background: true });
  defer(() => api('POST', `${sandbox}/commands/${id}/kill`));
  return async () => (await api('GET', `${sandbox}/commands/${id}/logs?cursor=0`)).content;
}

/** upload unpacks a tar archive in the sandbox. */
export const upload = (where, tar) => api('PUT', `${sandbox}/archive?path=${encodeURIComponent(where)}`, tar);

/** put writes a file in the sandbox. */
export const put = (where, text) => api('PUT', `${sandbox}/files?path=${encodeURIComponent(where)}`, new TextEncoder().encode(text));

/** panel gives the URL of a port, with a slash at its end. */
export const panel = async port => (await api('POST', `${sandbox}/panels`, { port, expiresInSeconds: 900 })).url.replace(/\/?$/, '/');

/** run runs a program here and gives its output. */
export function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    const out = [], err = [];
    child.stdout.on('data', d => out.push(d));
    child.stderr.on('data', d => err.push(d));
    child.on('error', reject);
    child.on('close', code => code === 0 ? resolve(Buffer.concat(out)) : reject(new Error(`${command}: exit ${code}: ${Buffer.concat(err)}`)));
  });
}

/** browser starts a person's browser. */
export async function browser() {
  const others = '/opt/cubepod/browsers'; // where make run puts one on Ubuntu
  const builds = existsSync(others) ? readdirSync(others, { recursive: true }).filter(f => /^chromium-.*\/chrome$/.test(f)) : [];
  const executablePath = ['/usr/bin/chromium', '/usr/bin/google-chrome', ...builds.map(f => path.join(others, f))].find(existsSync);
  check(executablePath, 'there is no Chromium here');
  const profile = mkdtempSync(path.join(tmpdir(), 'cubepod-try-'));
  defer(() => rmSync(profile, { recursive: true, force: true }));
  const b = await chromium.launchPersistentContext(profile, { executablePath, args: ['--no-sandbox'], viewport: { width: 1200, height: 800 }, ignoreHTTPSErrors: true });
  defer(() => b.close());
  return b;
}

/**
 * framed opens a panel in an <iframe> as a product would: in a page of another
 * site or, when it gets one, in own's, which is of the panels' site.
 */
export async function framed(b, url, own) {
  const page = await b.newPage();
  if (own) {
    await page.goto(`${own.product}?panel=${encodeURIComponent(url)}`);
  } else {
    const outer = http.createServer((req, res) => {
      res.setHeader('Content-Type', 'text/html');
      res.end(`<!doctype html><body style="margin:0"><iframe src="${url}" width="1200" height="800" style="border:0"></iframe>`);
    }).listen(0, '127.0.0.1');
    defer(() => new Promise(resolve => { outer.close(resolve); outer.closeAllConnections(); }));
    await new Promise(resolve => outer.on('listening', resolve));
    await page.goto(`http://127.0.0.1:${outer.address().port}/`);
  }
  const frame = await until('the frame', () => page.frames().find(f => f !== page.mainFrame()));
  return { page, frame };
}

/** ownHosts starts an edge that gives each sandbox a host of its own: url turns a panel's URL into one there. */
export async function ownHosts() {
  const port = await new Promise(resolve => {
    const s = net.createServer().listen(0, '127.0.0.1', () => { const { port } = s.address(); s.close(() => resolve(port)); });
  });
  mkdirSync(path.join(data, 'try'), { recursive: true });
  const edge = spawn(path.join(process.env.CUBEPOD_BIN, 'cubepod-edge'), ['run', '--config', path.join(data, 'try', 'own-hosts.Caddyfile'), '--adapter', 'caddyfile'],
    { env: { ...process.env, TRY_DATA: data, TRY_PORT: String(port) }, stdio: 'ignore' });
  const ended = new Promise(resolve => edge.on('close', resolve));
  defer(() => { edge.kill(); return ended; });
  const host = `${facts.sandboxID}.panels.localhost`;
  await until('the edge with own hosts', () => new Promise((resolve, reject) => {
    const s = tls.connect({ host: '127.0.0.1', port, servername: host, rejectUnauthorized: false }, () => { s.end(); resolve(true); });
    s.on('error', reject);
  }));
  return { product: `https://app.panels.localhost:${port}/`, url: url => `https://${host}:${port}${new URL(url).pathname}` };
}
