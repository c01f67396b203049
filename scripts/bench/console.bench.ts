// The console's page in Chromium: its size, and how long it takes from the address to the drawn page, with an empty
// cache and with a filled one; a thousand instances, and the longest frame while they scroll. The answers are scripted,
// so that the page alone is measured; the server's part of each request is in `strongroom serve`.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { BrowserContext, Page } from 'playwright-core'
import { buildPage } from '../../src/console/page/build.ts'
import { AdminInstanceList } from '../../src/contract/admin/admin.ts'
import { launchChromium } from '../rigs/chromium.ts'
import { instance } from '../rigs/console/documents.ts'
import { document, scriptedConsole } from '../rigs/console/scripted-console.ts'
import type { Figure, Figures } from './bench-report.ts'
import type { BenchContext } from './main.ts'

const loads = 15
const warmUpLoads = 3
const firstLoadMsMax = 300
const firstLoadBytesMax = 65_536
const frameMsMax = 50
const rowCount = 1_000

export async function run({ note, signal }: BenchContext): Promise<Figures> {
  await using console_ = await scriptedConsole()
  const rows = [...Array(rowCount).keys()].map(number => instance(number))
  console_.answer('GET /api/operator/instances', () => document(AdminInstanceList, { instances: rows, more: false }))
  const profile = mkdtempSync(join(tmpdir(), 'srt-console-'))
  const context = await launchChromium(profile)
  try {
    const page = await context.newPage()
    const [empty, filled, thousand]: [number[], number[], number[]] = [[], [], []]
    for (let load = -warmUpLoads; load < loads; load += 1) {
      signal.throwIfAborted()
      await emptyCache(context, page)
      const times = [
        await drawnMs(page, `${console_.url}/`, '.cards'),
        await drawnMs(page, `${console_.url}/`, '.cards'),
        await drawnMs(page, `${console_.url}/instances`, '.long-table tbody a'),
      ] as const
      if (load < 0) continue
      for (const [at, list] of [empty, filled, thousand].entries()) list.push(times[at] ?? 0)
    }
    note(`${loads} loads`)
    const frames = await scrollFramesMs(page)
    return {
      firstLoadP50Ms: ms(quantile(empty, 0.5), firstLoadMsMax),
      firstLoadP95Ms: ms(quantile(empty, 0.95), null),
      nextLoadP50Ms: ms(quantile(filled, 0.5), firstLoadMsMax),
      thousandRowsP50Ms: ms(quantile(thousand, 0.5), null),
      scrollFrameP99Ms: ms(quantile(frames, 0.99), frameMsMax),
      ...(await sizes()),
    }
  } finally {
    await context.close()
    rmSync(profile, { recursive: true, force: true })
  }
}

async function emptyCache(context: BrowserContext, page: Page): Promise<void> {
  const devtools = await context.newCDPSession(page)
  await devtools.send('Network.clearBrowserCache')
  await devtools.detach()
}

/** From the start of the navigation to the first frame with this element, by the page's own clock. */
async function drawnMs(page: Page, url: string, selector: string): Promise<number> {
  await page.goto(url, { waitUntil: 'commit' })
  return await page.evaluate<number>(`new Promise(resolve => {
    const look = () => document.querySelector(${JSON.stringify(selector)}) === null
      ? requestAnimationFrame(look)
      : requestAnimationFrame(() => resolve(performance.now()))
    look()
  })`)
}

/** Time between frames while the table moves by half a screen in each. */
async function scrollFramesMs(page: Page): Promise<number[]> {
  return await page.evaluate<number[]>(`new Promise(resolve => {
    const area = document.querySelector('.long-table')
    const frames = []
    let before = performance.now()
    const step = now => {
      frames.push(now - before)
      before = now
      area.scrollTop += area.clientHeight / 2
      if (area.scrollTop + area.clientHeight >= area.scrollHeight - 1) resolve(frames.slice(2))
      else requestAnimationFrame(step)
    }
    requestAnimationFrame(step)
  })`)
}

/** Compressed as they are served: files of the first page, and everything else that may be loaded later. */
async function sizes(): Promise<Figures> {
  const files = (await buildPage()).map(({ path, bytes }) => {
    return { path, sizeBytes: Bun.gzipSync(Uint8Array.from(bytes), { level: 9 }).length }
  })
  const isFirst = ({ path }: { path: string }) => path === '/index.html' || path.startsWith('/assets/main-')
  const sum = (of: typeof files) => of.reduce((all, { sizeBytes }) => all + sizeBytes, 0)
  const bytes = (value: number, atMost: number | null): Figure => {
    return { value, unit: 'B', aim: atMost === null ? null : { atMost } }
  }
  return {
    firstLoadBytes: bytes(sum(files.filter(isFirst)), firstLoadBytesMax),
    laterBytes: bytes(sum(files.filter(file => !isFirst(file))), null),
  }
}

function ms(value: number, atMost: number | null): Figure {
  return { value, unit: 'ms', aim: atMost === null ? null : { atMost } }
}

function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
}
