// The client of package-client.mjs in a page of a gateway's own address, in Chromium: the package as a bundler takes
// it for pages. Effects: a browser.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { launchChromium } from '../portable/runtimes.ts'
import type { PackageClient, PackageProject, Told } from './package-project.ts'

const pageTimeoutMs = 60_000
const html =
  '<!doctype html><meta charset="utf-8"><title>client</title><script type="module" src="/client.js"></script>'

/** Ignores certificates: no test may rest on them. Only modules of the page's own address may run in it. */
export async function openClientPage(project: PackageProject, url: string): Promise<PackageClient> {
  const script = await bundleClient(project.folder)
  const profile = mkdtempSync(join(tmpdir(), 'srt-chromium-'))
  const context = await launchChromium(profile, { ignoreHTTPSErrors: true })
  const page = await context.newPage()
  page.setDefaultTimeout(pageTimeoutMs)
  const headers = { 'content-security-policy': "default-src 'none'; script-src 'self'; connect-src 'self'" }
  await page.route(`${url}/page.html`, route => route.fulfill({ headers, contentType: 'text/html', body: html }))
  await page.route(`${url}/client.js`, route => route.fulfill({ contentType: 'text/javascript', body: script }))
  await page.goto(`${url}/page.html`)
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
