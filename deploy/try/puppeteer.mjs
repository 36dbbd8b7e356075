// Puppeteer drives the sandbox's browser. Its browserURL drops a URL's path, so
// it gets the WebSocket's address, which the browser itself tells.
import puppeteer from 'puppeteer-core';
import { attempt, check, facts } from './lib.mjs';

await attempt('puppeteer', async () => {
  const { webSocketDebuggerUrl } = await (await fetch(`${facts.cdpUrl}json/version`)).json();
  const b = await puppeteer.connect({ browserWSEndpoint: webSocketDebuggerUrl, defaultViewport: null });
  const page = await b.newPage();
  try {
    await page.goto('data:text/html,<title>try</title><input id=a><button onclick="document.title=a.value">set</button>');
    await page.type('#a', 'typed by Puppeteer');
    await page.click('button');
    check(await page.title() === 'typed by Puppeteer', `the title is ${await page.title()}`);
    check((await page.screenshot()).length > 1000, 'the screenshot is empty');
  } finally {
    await page.close();
    await b.disconnect();
  }
});
