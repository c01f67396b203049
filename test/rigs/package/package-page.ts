// The client of package-client.mjs in a page, in Chromium: the package as a bundler takes it for pages. The page is at
// a gateway's own address, or on a site of its own. Effects: a browser, a free port.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { launchChromium } from '../../../scripts/rigs/chromium.ts'
import type { PackageClient, PackageProject, Told } from './package-project.ts'

const pageTimeoutMs = 60_000
const html =
  '<!doctype html><meta charset="utf-8"><title>client</title><script type="module" src="/client.js"></script>'

/** Only modules of the page's own address may run in it. */
function policyOf(connectTo: string): Record<string, string> {
  return { 'content-security-policy': `default-src 'none'; script-src 'self'; connect-src ${connectTo}` }
}

/** At the gateway's own address, which gives the page by a detour of the browser's. */
export async function openClientPage(project: PackageProject, url: string): Promise<PackageClient> {
  const script = await bundleClient(project.folder)
  return await openPage(`${url}/page.html`, async page => {
    const headers = policyOf("'self'")
    await page.route(`${url}/page.html`, route => route.fulfill({ headers, contentType: 'text/html', body: html }))
    await page.route(`${url}/client.js`, route => route.fulfill({ contentType: 'text/javascript', body: script }))
  })
}

export type ClientSite = AsyncDisposable & {
  readonly origin: string
  /** A page that may connect there and nowhere else. No request of it is routed by the test. */
  readonly open: (connectTo: string) => Promise<PackageClient>
}

/** A site of its own, with the page. */
export async function startClientSite(project: PackageProject): Promise<ClientSite> {
  const script = await bundleClient(project.folder)
  let connectTo = "'none'"
  const file = (text: string, type: string) =>
    new Response(text, { headers: { 'content-type': `${type}; charset=utf-8`, ...policyOf(connectTo) } })
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    routes: { '/': () => file(html, 'text/html'), '/client.js': () => file(script, 'text/javascript') },
    fetch: () => new Response(null, { status: 404 }),
  })
  const origin = `http://127.0.0.1:${server.port}`
  return {
    origin,
    open: url => {
      connectTo = url
      return openPage(`${origin}/`)
    },
    [Symbol.asyncDispose]: () => server.stop(true),
  }
}

/** Ignores certificates: no test may rest on them. */
async function openPage(url: string, prepare: (page: Page) => Promise<void> = async () => {}): Promise<PackageClient> {
  const profile = mkdtempSync(join(tmpdir(), 'srt-chromium-'))
  const context = await launchChromium(profile, { ignoreHTTPSErrors: true })
  const page = await context.newPage()
  page.setDefaultTimeout(pageTimeoutMs)
  await prepare(page)
  await page.goto(url)
  await page.waitForFunction('globalThis.client !== undefined')
  return {
    ask: async command => await page.evaluate<Told>(`globalThis.client(${JSON.stringify(command)})`),
    [Symbol.asyncDispose]: async () => {
      await context.close()
      rmSync(profile, { recursive: true, force: true })
    },
  }
}

/** As any bundler does, by the package's `exports`. */
async function bundleClient(folder: string): Promise<string> {
  const entry = join(folder, 'page.mjs')
  await Bun.write(entry, "import { createClient } from './package-client.mjs'\nglobalThis.client = createClient()\n")
  const { outputs } = await Bun.build({ entrypoints: [entry], target: 'browser', format: 'esm' })
  const [output] = outputs
  if (output === undefined) throw new Error('the page was not bundled')
  return await output.text()
}
