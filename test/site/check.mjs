// Looks at every page of the built site in Chromium at two widths: nothing may be wider than the window, and every picture must load.
// Pictures of the pages, some to a sheet, go to .build/site-pictures for people to look at.
//
//   node test/site/check.mjs
import { execFile } from 'node:child_process'
import { createReadStream, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, extname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..')
const site = join(root, '.build/site')
const sheets = join(root, '.build/site-pictures')
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.png': 'image/png', '.json': 'application/json', '.woff2': 'font/woff2' }
const widths = [1280, 390]
const perSheet = 6

const pages = readdirSync(site, { recursive: true }).filter((name) => name.endsWith('.html') && name !== '404.html').sort()
if (pages.length < 30) throw new Error(`only ${pages.length} pages are in ${site}: run make site`)

// sheet is a page that shows pages in frames of a width, and writes what is wrong with them into its own text.
const sheet = (width, shown) => `<!doctype html><meta charset=utf-8><body style="margin:0;display:flex;gap:8px;background:#888">
${shown.map((page) => `<iframe src="/${page}" width=${width} height=1600 style="border:0;background:#fff;flex:none"></iframe>`).join('')}
<pre id=result hidden></pre><script>
const wrong = []
window.onload = () => setTimeout(() => {
  for (const frame of document.querySelectorAll('iframe')) {
    const doc = frame.contentDocument, name = new URL(frame.src).pathname
    if (!doc.querySelector('.VPDoc h1, .VPHome')) wrong.push(name + ' has no heading')
    if (doc.documentElement.scrollWidth > ${width}) {
      const wide = [...doc.querySelectorAll('.vp-doc *')].find((e) => e.getBoundingClientRect().right > ${width} && !e.closest('table, pre, .drawing'))
      wrong.push(name + ' is ' + doc.documentElement.scrollWidth + ' wide, of ${width}: ' + (wide ? wide.outerHTML.slice(0, 150) : ''))
    }
    for (const image of doc.images) if (image.complete && image.naturalWidth === 0) wrong.push(name + ' has no picture ' + image.getAttribute('src'))
  }
  document.getElementById('result').textContent = 'checked ' + document.querySelectorAll('iframe').length + '\\n' + wrong.join('\\n')
}, 3000)
</script>`

const server = createServer((request, response) => {
  const url = new URL(request.url, 'http://localhost')
  if (url.pathname === '/_sheet') {
    const from = Number(url.searchParams.get('from'))
    response.writeHead(200, { 'content-type': 'text/html' })
    return response.end(sheet(Number(url.searchParams.get('width')), pages.slice(from, from + perSheet)))
  }
  const file = join(site, decodeURIComponent(url.pathname))
  if (!file.startsWith(site) || !statSync(file, { throwIfNoEntry: false })?.isFile()) return response.writeHead(404).end()
  response.writeHead(200, { 'content-type': types[extname(file)] ?? 'application/octet-stream' })
  createReadStream(file).pipe(response)
})
await new Promise((ready) => server.listen(0, '127.0.0.1', ready))
const profile = mkdtempSync(join(tmpdir(), 'site-check-'))
const chromium = (width, from, ...more) =>
  promisify(execFile)(process.env.CHROMIUM ?? 'chromium', [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--hide-scrollbars', `--user-data-dir=${profile}`,
    '--virtual-time-budget=20000', `--window-size=${(width + 8) * perSheet},1600`, ...more,
    `http://127.0.0.1:${server.address().port}/_sheet?width=${width}&from=${from}`,
  ], { maxBuffer: 1 << 26, timeout: 300_000 })

const wrong = []
mkdirSync(sheets, { recursive: true })
for (const width of widths) {
  for (let from = 0; from < pages.length; from += perSheet) {
    const { stdout } = await chromium(width, from, '--dump-dom')
    const [checked, ...found] = stdout.match(/<pre id="result"[^>]*>([^]*?)<\/pre>/)[1].split('\n')
    if (checked !== `checked ${Math.min(perSheet, pages.length - from)}`) found.push(`pages from ${pages[from]} were not checked: ${checked}`)
    wrong.push(...found.filter(Boolean).map((what) => `${width}: ${what}`))
    await chromium(width, from, `--screenshot=${join(sheets, `${width}-${String(from).padStart(2, '0')}.png`)}`)
  }
}
server.close()
rmSync(profile, { recursive: true, force: true })
console.log(wrong.join('\n') || `${pages.length} pages at ${widths.join(' and ')} pixels: nothing is too wide, every picture is there`)
process.exit(wrong.length > 0 ? 1 : 0)
