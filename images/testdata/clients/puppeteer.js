// Opens a page in the desktop's browser by Puppeteer and prints its title.
import puppeteer from 'puppeteer-core'

const [endpoint, url] = process.argv.slice(2)
const browser = await puppeteer.connect({ browserURL: endpoint })
const page = await browser.newPage()
await page.goto(url)
console.log(await page.title())
await browser.disconnect()
