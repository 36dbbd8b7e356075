// Playwright drives the sandbox's browser with nothing but its CDP URL.
import { chromium } from 'playwright-core';
import { attempt, check, facts } from './lib.mjs';

await attempt('playwright', async () => {
  const b = await chromium.connectOverCDP(facts.cdpUrl);
  const page = await b.contexts()[0].newPage();
  try {
    await page.goto('data:text/html,<title>try</title><input id=a><button onclick="document.title=a.value">set</button>');
    await page.fill('#a', 'typed by Playwright');
    await page.click('button');
    check(await page.title() === 'typed by Playwright', `the title is ${await page.title()}`);
    check((await page.screenshot()).length > 1000, 'the screenshot is empty');
  } finally {
    await page.close();
    await b.close();
  }
  return b.version();
});
