// Goal: a download waits as a server requests by Retry-After, within bounds; with a server on 127.0.0.1 and a clock
// that only the waits move.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import type { Clock } from '../../../src/base/clock.ts'
import { Downloader } from '../../../src/client/collateral/download.ts'
import type { Run } from '../../../src/terminal/command.ts'
import { EXIT, exitCodeOf } from '../../../src/terminal/exit.ts'

const startMs = Date.parse('2026-01-01T00:00:00Z')
let answers: Response[] = []
let requests = 0
const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  fetch: () => {
    requests += 1
    return answers.shift() ?? new Response('found')
  },
})
afterAll(() => server.stop(true))

let waits: number[] = []
let nowMs = startMs
const clock: Clock = {
  nowMs: () => nowMs,
  monotonicMs: () => nowMs,
  sleep: async ms => {
    waits.push(ms)
    nowMs += ms
  },
}
beforeEach(() => {
  answers = []
  requests = 0
  waits = []
  nowMs = startMs
})

const busy = (retryAfter: string | null, status = 429) =>
  new Response('', { status, headers: retryAfter === null ? {} : { 'retry-after': retryAfter } })

async function download(): Promise<string> {
  const downloader = new Downloader({ run: { hint: async () => {} } as unknown as Run, clock, asOfMs: startMs })
  const wanted = { kind: 'file', url: server.url.href, bodyBytesMax: 16, param: 'file', mirror: 'url' }
  return new TextDecoder().decode(await downloader.fetch(wanted))
}

test('goal: seconds and dates are waited for, of 429 and of 503', async () => {
  answers = [busy('7'), busy(new Date(startMs + 7_000 + 20_000).toUTCString(), 503)]
  expect([await download(), waits, requests]).toEqual(['found', [7_000, 20_000], 3])
})

test('goal: neither longer than the bound, nor a third time, nor without a word, nor for another status', async () => {
  for (const [script, waited, made, remedy] of [
    [[busy('31')], [], 1, 'try again in 31 s'],
    [[busy('30'), busy('30'), busy('5')], [30_000, 30_000], 3, 'try again in 5 s'],
    [[busy(null)], [], 1, 'try again in 10 s'],
    [[busy('soon')], [], 1, 'try again in 10 s'],
    [[busy('1', 500)], [], 1, 'name a mirror by --url, or the file by --file'],
    [[busy('1', 302)], [], 1, 'name a mirror by --url, or the file by --file'],
  ] as const) {
    answers = [...script]
    requests = 0
    waits = []
    const error = await download().catch((error: unknown) => error)
    expect([exitCodeOf(error), waits, requests]).toEqual([EXIT.unreachable, [...waited], made])
    expect(error).toMatchObject({ code: 'attest.unavailable', remedy: expect.stringContaining(remedy) })
  }
})

test('goal: all waits and downloads of a command together have a bound', async () => {
  const limits = { totalMs: 25_000 }
  const downloader = new Downloader({ run: { hint: async () => {} } as unknown as Run, clock, asOfMs: startMs, limits })
  answers = [busy('20'), busy('6')]
  const wanted = { kind: 'file', url: server.url.href, bodyBytesMax: 16, param: 'file', mirror: 'url' }
  await expect(downloader.fetch(wanted)).rejects.toMatchObject({ code: 'attest.unavailable' })
  expect([waits, requests]).toEqual([[20_000], 2])
})
