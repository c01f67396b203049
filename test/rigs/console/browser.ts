// The console's page in Chromium: every error of the page, and everything that its policy refused, is kept. Effects: a
// browser, a temporary profile.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { Page } from 'playwright-core'
import { type ChromiumOptions, launchChromium } from '../../../scripts/rigs/chromium.ts'

export const phone = { width: 390, height: 800 } as const
export const tablet = { width: 820, height: 1_180 } as const
export const desk = { width: 1_280, height: 860 } as const

export type OpenedPage = AsyncDisposable & {
  readonly page: Page
  /** Errors of scripts, of the console, and refusals of the policy; failed requests are the tests' own. */
  readonly faults: readonly string[]
  /** Addresses at other hosts that the page asked for. */
  readonly strangers: readonly string[]
}

/** A browser on a busy machine; what is there takes none of it. */
const actionTimeoutMs = 60_000

/** `browser`: what it is started with besides, given its own folder. */
export async function openPage(
  origin: string,
  browser: (profile: string) => ChromiumOptions = () => ({}),
): Promise<OpenedPage> {
  const profile = mkdtempSync(join(tmpdir(), 'srt-console-'))
  const context = await launchChromium(profile, { ignoreHTTPSErrors: true, ...browser(profile) })
  const page = await context.newPage()
  page.setDefaultTimeout(actionTimeoutMs)
  await page.setViewportSize(desk)
  const host = new URL(origin).hostname
  const faults: string[] = []
  const strangers: string[] = []
  page.on('pageerror', error => faults.push(String(error)))
  page.on('console', message => {
    const isNetwork = message.text().startsWith('Failed to load resource')
    if (message.type() === 'error' && !isNetwork) faults.push(message.text())
  })
  page.on('request', request => {
    const url = request.url()
    if (!url.startsWith('blob:') && new URL(url).hostname !== host) strangers.push(url)
  })
  return {
    page,
    faults,
    strangers,
    [Symbol.asyncDispose]: async () => {
      await context.close()
      rmSync(profile, { recursive: true, force: true })
    },
  }
}

const axeSource = readFileSync(resolve(import.meta.dir, '../../../node_modules/axe-core/axe.min.js'), 'utf8')

const axeOptions = {
  runOnly: { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] },
}

type AccessViolation = {
  readonly id: string
  readonly nodes: readonly { readonly html: string; readonly failureSummary: string }[]
}

/** Findings of axe-core against WCAG 2.2 A and AA, one line for each element. */
export async function accessFaults(page: Page): Promise<string[]> {
  await page.evaluate(axeSource)
  const violations = await page.evaluate<readonly AccessViolation[]>(`axe.run(${JSON.stringify(axeOptions)})
    .then(({ violations }) => violations.map(({ id, nodes }) => ({
      id,
      nodes: nodes.map(({ html, failureSummary }) => ({ html, failureSummary })),
    })))`)
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(node => `${id}: ${node.html.slice(0, 160)} ${node.failureSummary}`),
  )
}
