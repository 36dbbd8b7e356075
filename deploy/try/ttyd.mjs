// ttyd itself, in a sandbox, with its own page: typed commands run.
import { attempt, browser, framed, panel, run, serve, sh, Skip, until, upload } from './lib.mjs';

const shell = 'bash --norc';

// command gives what runs ttyd in the sandbox; where it has none, that of the
// desktop image is brought, with its libraries, which the shell must not see.
async function command(options) {
  if (await sh('command -v ttyd || true')) return `ttyd ${options} ${shell}`;
  const image = 'cubepod/desktop:dev';
  const pack = 'cd / && tar -ch --transform "s,^,ttyd/," $(ldd /usr/bin/ttyd $(find /usr/lib -name "libwebsockets-evlib_uv.so*") | grep -o "/[^ :]*" | sort -u | sed "s,^/,,") $(find usr/lib -name "libwebsockets-evlib_uv.so*") usr/bin/ttyd';
  let tar;
  try {
    tar = await run('docker', ['run', '--rm', '--network', 'none', '--entrypoint', '/bin/sh', image, '-c', pack]);
  } catch (e) {
    throw new Skip(`this release has no ttyd to install, and there is no ${image} to take it from`);
  }
  await upload('/workspace', tar);
  const libs = (await sh('find /workspace/ttyd -name "*.so*" -printf "%h\\n" | sort -u')).trim().split('\n').join(':');
  const loader = (await sh('find /workspace/ttyd -name "ld-linux*" | head -1')).trim();
  const hosts = (await sh('ldd /usr/bin/env | grep -o "/[^ ]*/ld-linux[^ ]*"; dirname $(ldd /usr/bin/env | grep -o "/[^ ]*libc.so[^ ]*")')).trim().split('\n');
  return `env LD_LIBRARY_PATH=${libs} ${loader} --library-path ${libs} /workspace/ttyd/usr/bin/ttyd ${options} ` +
    `${hosts[0]} --library-path ${hosts[1]} /usr/bin/env -u LD_LIBRARY_PATH ${shell}`;
}

await attempt('ttyd', async () => {
  const log = await serve(`exec ${await command('--writable --interface lo --port 7999')}`);
  const url = await panel(7999);
  await until('ttyd answers', async () => { if ((await fetch(url)).ok) return true; throw new Error(await log()); });
  const { page, frame } = await framed(await browser(), url);
  await frame.waitForSelector('.xterm-helper-textarea', { state: 'attached' });
  await frame.focus('.xterm-helper-textarea');
  await sh('rm -f /workspace/by-ttyd');
  await page.keyboard.type('echo $((6*7)) > /workspace/by-ttyd\n');
  await until('what is typed runs', async () => await sh('cat /workspace/by-ttyd 2>/dev/null || true') === '42\n');
});
