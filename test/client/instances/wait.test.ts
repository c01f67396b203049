// Goal: waiting ends with the instance, with the time, or with a service that does not answer, and never sooner.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import type { SeenInstance } from '../../../src/client/instances/records.ts'
import { RefusedFault } from '../../../src/client/instances/service.ts'
import { waitForInstance } from '../../../src/client/instances/wait.ts'
import { AdvisedFault } from '../../../src/terminal/exit.ts'

const record = (status: string): SeenInstance => ({
  name: 'k3v9x2ma',
  status,
  hostname: 'k3v9x2ma.acme.agents.example',
  public_key: 'ssh-ed25519 AAAA',
  inference_model: 'tiny',
  created_at: '2026-11-20T08:30:00.000Z',
})
const unreachable = new AdvisedFault('api.unreachable', 'no response', { remedy: 'x' })
const busy = new RefusedFault('rate_limited', '429', { remedy: 'x', retryMs: 30_000, status: 429 })
const forbidden = new RefusedFault('forbidden', '403', { remedy: 'x', retryMs: null, status: 403 })

/** The wait over these answers, the last one for all further requests, and the times of the requests. */
async function waiting(answers: readonly (SeenInstance | Error | null)[], timeoutMs = 60_000) {
  const clock = createManualClock()
  const startMs = clock.monotonicMs()
  const askedMs: number[] = []
  const retrieve = async () => {
    const answer = answers[Math.min(askedMs.length, answers.length - 1)] ?? null
    askedMs.push(clock.monotonicMs() - startMs)
    if (answer instanceof Error) throw answer
    return answer
  }
  const words: string[] = []
  let isOver = false
  const ended = waitForInstance({
    service: { host: 'a.example', retrieve },
    name: 'k3v9x2ma',
    clock,
    timeoutMs,
    onStatus: async text => void words.push(text),
  }).finally(() => {
    isOver = true
  })
  const settled = ended.then(
    found => ({ found, error: null }),
    (error: unknown) => ({ found: null, error }),
  )
  await Promise.resolve()
  for (let step = 0; step < 1_000 && !isOver; step += 1) await clock.elapse(500)
  return { ...(await settled), askedMs, words }
}

test('goal: it polls with growing pauses of at most five seconds until the status is another one', async () => {
  const { found, askedMs, words } = await waiting([...Array(8).fill(record('provisioning')), record('ready')])
  expect(found?.status).toBe('ready')
  const pauses = askedMs.slice(1).map((atMs, at) => atMs - (askedMs[at] ?? 0))
  expect([pauses[0], Math.max(...pauses), pauses.length]).toEqual([1_000, 5_000, 8])
  expect(new Set(words)).toEqual(new Set(['k3v9x2ma is provisioning']))
})

test('goal: after the time it returns what it last saw', async () => {
  const { found, askedMs } = await waiting([record('provisioning')], 20_000)
  expect([found?.status, askedMs.at(-1)]).toEqual(['provisioning', 20_000])
})

test('goal: failures that may pass are repeated, as long as Retry-After demands; others end it', async () => {
  const passed = await waiting([unreachable, busy, record('ready')])
  expect(passed.found?.status).toBe('ready')
  expect((passed.askedMs[2] ?? 0) - (passed.askedMs[1] ?? 0)).toBe(30_000)
  const refused = await waiting([forbidden, record('ready')])
  expect([refused.error, refused.askedMs.length]).toEqual([forbidden, 1])
  expect((await waiting([null])).found).toBeNull()
})

test('goal: a service that never answers ends it after ten requests, or with the time', async () => {
  const dead = await waiting([unreachable], 3_600_000)
  expect([dead.error, dead.askedMs.length]).toEqual([unreachable, 10])
  expect((await waiting([unreachable], 3_000)).error).toBe(unreachable)
})
