// code-server opens a folder and a file. It needs an own host, a compiler, and
// Node.js 24, which npm has, too.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { attempt, browser, data, framed, ownHosts, panel, put, run, serve, sh, until, upload } from './lib.mjs';

await attempt('code-server', async () => {
  const dir = path.join(data, 'try', 'code-server');
  if (!existsSync(path.join(dir, 'node_modules/.bin/code-server'))) {
    await run('apt-get', ['install', '-y', '--no-install-recommends', 'g++', 'make', 'python3', 'libkrb5-dev']);
    mkdirSync(dir, { recursive: true });
    writeFileSync(path.join(dir, 'package.json'), '{"name":"try-code-server","private":true}');
    const npm = (...args) => run('npm', ['install', '--no-audit', '--no-fund', '--loglevel', 'error', '-E', ...args],
      { cwd: dir, env: { ...process.env, PATH: `${dir}/node_modules/.bin:${process.env.PATH}` } });
    await npm('node@24.21.0');
    await npm('code-server@4.139.1');
  }
  if (!await sh('test -e /workspace/code/node_modules/.bin/code-server && echo there || true')) {
    await upload('/workspace/code', await run('tar', ['-C', dir, '-c', 'node_modules']));
  }
  await put('/workspace/project/hello.txt', 'hello from the sandbox\n');
  const log = await serve('PATH=/workspace/code/node_modules/.bin:$PATH exec node node_modules/code-server/out/node/entry.js --auth none --bind-addr 127.0.0.1:8443 --disable-telemetry --disable-update-check --disable-workspace-trust /workspace/project', '/workspace/code');
  const url = await panel(8443);
  await until('code-server answers', async () => { if ((await fetch(`${url}healthz`)).ok) return true; throw new Error(await log()); });
  const own = await ownHosts();
  const { frame } = await framed(await browser(), `${own.url(url)}?folder=/workspace/project`, own);
  await frame.getByText('hello.txt').first().dblclick({ timeout: 90_000 });
  await until('the file\'s text', () => frame.evaluate(() => document.querySelector('.view-lines')?.innerText.replaceAll('\u00a0', ' ').includes('hello from the sandbox')));
});
