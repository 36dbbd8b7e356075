// Debian's noVNC, unchanged, served by one panel and connected to another: the
// page gets the socket's path by its own parameter. It keeps its settings in
// localStorage, which a page of an opaque origin has not: it needs an own host.
import { attempt, browser, check, facts, framed, ownHosts, panel, serve, sh, until } from './lib.mjs';

await attempt('novnc', async () => {
  await sh('test -r /usr/share/novnc/vnc.html && command -v python3');
  await serve('exec python3 -m http.server --bind 127.0.0.1 6080 --directory /usr/share/novnc');
  const page = await panel(6080);
  await until('the page', async () => (await fetch(`${page}vnc.html`)).ok);
  const socket = `${new URL(facts.desktopUrl).pathname.split('/').slice(1, 3).join('/')}/websockify`;
  const own = await ownHosts();
  const { frame } = await framed(await browser(), `${own.url(page)}vnc.html?autoconnect=true&path=${encodeURIComponent(socket)}`, own);
  await until('noVNC is connected', () => frame.evaluate(() => document.documentElement.classList.contains('noVNC_connected')));
  const size = await until('noVNC has a picture', () => frame.evaluate(() => {
    const c = document.querySelector('canvas');
    return c && c.width > 300 && c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 < 3 && v > 0) && `${c.width}x${c.height}`;
  }));
  check(size, 'no picture');
  return size;
});
