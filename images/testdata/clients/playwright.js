// Opens a page in the desktop's browser by Playwright and prints its title.
import { chromium } from 'playwright-core'

const [endpoint, url] = process.argv.slice(2)
const browser = await chromium.connectOverCDP(endpoint)
const page = await browser.contexts()[0].newPage()
await page.goto(url)
console.log(await page.title())
await browser.close()
