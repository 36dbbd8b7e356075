// A Vite dev server whose page changes by an edit, without a reload: on a host
// of its own with nothing to configure, and below a panel's path with the base
// and the plugin of vite/vite.config.js.
import path from 'node:path';
import { attempt, browser, check, framed, hidden, ownHosts, panel, put, run, serve, sh, until, upload } from './lib.mjs';

await attempt('vite', async () => {
  const project = path.join(import.meta.dirname, 'vite');
  await run('npm', ['install', '--no-audit', '--no-fund', '--loglevel', 'error'], { cwd: project });
  await sh('command -v node');
  await upload('/workspace/vite', await run('tar', ['-C', project, '-c', '.']));
  const own = await ownHosts();
  const b = await browser();
  for (const [mode, port, base, address] of [['own host', 5173, '', own.url], ['path', 5174, 'panel', url => url]]) {
    const url = await panel(port);
    await put('/workspace/vite/word.js', 'export const word = "first";\n');
    const log = await serve(`${base && `BASE=${new URL(url).pathname} `}exec node node_modules/vite/bin/vite.js --port ${port}`, '/workspace/vite');
    await until(`${mode}: Vite answers`, async () => { if ((await fetch(url)).ok) return true; throw new Error(await log()); });
    const { page, frame } = await framed(b, address(url));
    const errors = [];
    page.on('console', m => m.type() === 'error' && errors.push(hidden(m.text())));
    const word = w => until(`${mode}: the page says ${w} (${errors.join('; ')})`, () => frame.evaluate(w => document.querySelector('#word')?.textContent === w, w));
    await word('first');
    await frame.evaluate(() => { window.here = true; });
    await put('/workspace/vite/word.js', 'export const word = "second";\n');
    await word('second');
    check(await frame.evaluate(() => window.here), `${mode}: the page was loaded again`);
    await page.close();
  }
  return 'hot reload on an own host and below a path';
});
