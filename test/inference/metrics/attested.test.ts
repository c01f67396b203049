// Goal: an operator sees of each attested upstream when its evidence was good last, how long ago, and which checks
// failed, out of the metrics that cross from the gateway's VM; a VM that lies in them can do no more than lie.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { target } from '../../../scripts/rigs/gateway/server.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { metricsText } from '../../../src/base/prometheus.ts'
import { attestedChecks } from '../../../src/cli/doctor/gateway.plan.ts'
import { attestedFamilies } from '../../../src/inference/metrics/attested.ts'
import { readAttested } from '../../../src/inference/metrics/attested-read.ts'
import { AttestedUpstreams } from '../../../src/inference/upstream/attested/keeper.ts'
import type { Attested } from '../../../src/inference/upstream/attested/verify.ts'

const attestation = {
  kind: 'tdx',
  policy: '{}',
  path: '/attestation',
  intervalMs: 600_000,
  collateralFile: null,
  simulatedRoot: null,
} as const
const good: Attested = { ok: true, spkiSha256: 'ab'.repeat(32), untilMs: null }
const bad = (check: string): Attested => ({ ok: false, check, reason: 'because' })

function rig() {
  const clock = createManualClock()
  let next: Attested = good
  const keeper = new AttestedUpstreams({
    clock,
    random: () => new Uint8Array(32),
    log: silentLogger,
    verify: async () => next,
  })
  const { name } = keeper.follow(target('https://up:1/v1', { attestation }))
  const check = async (found: Attested, times = 1) => {
    next = found
    for (let n = 0; n < times; n += 1) await keeper.check(name)
  }
  const text = () => metricsText(attestedFamilies(keeper.view()))
  return { clock, keeper, name, check, text }
}

test('goal: before the first good verification, after it, and after failures: the metrics say it, and are read again', async () => {
  const { clock, keeper, name, check, text } = rig()
  expect(readAttested(text())).toEqual([
    { name, kind: 'tdx', attested: false, goodAtMs: null, ageMs: null, failures: [] },
  ])
  await check(bad('connection'), 2)
  const goodAtMs = clock.nowMs()
  await check(good)
  clock.advance(90_000)
  expect(text()).toContain(`strongroom_upstream_attestation_age_seconds{upstream="${name}"} 90\n`)
  expect(readAttested(text())).toEqual([
    { name, kind: 'tdx', attested: true, goodAtMs, ageMs: 90_000, failures: [{ check: 'connection', count: 2 }] },
  ])
  await check(bad('mr-td'))
  expect(readAttested(text())).toMatchObject([
    {
      attested: false,
      goodAtMs,
      failures: [
        { check: 'connection', count: 2 },
        { check: 'mr-td', count: 1 },
      ],
    },
  ])
  expect(readAttested(text())).toEqual(keeper.view())
  // A clock that is set changes no age.
  clock.set(0)
  expect(keeper.view()[0]?.ageMs).toBe(90_000)
})

test('goal: names of checks that an upstream invents are counted together, and none of them reaches the text', async () => {
  const { check, text } = rig()
  for (let n = 0; n < 100; n += 1) await check(bad(`invented-${n}`))
  await check(bad('x"} 1\nstrongroom_upstream_attested{upstream="y'))
  const [upstream] = readAttested(text())
  expect(upstream?.failures).toHaveLength(33)
  expect(upstream?.failures.find(({ check: name }) => name === 'other')?.count).toBe(69)
  expect(text()).not.toContain('\nstrongroom_upstream_attested{upstream="y')
})

test('goal: text of a hostile VM is read within bounds, and what has another form says nothing', () => {
  const of = (n: number) => `strongroom_upstream_attested{upstream="u${n}",kind="tdx"} 1\n`
  expect(readAttested(Array.from({ length: 1_000 }, (_, n) => of(n)).join(''))).toHaveLength(64)
  const failures = Array.from(
    { length: 1_000 },
    (_, n) => `strongroom_upstream_attestation_failures_total{upstream="u0",check="c${n}"} 1\n`,
  )
  expect(readAttested(of(0) + failures.join(''))[0]?.failures).toHaveLength(64)
  for (const line of [
    'strongroom_upstream_attested{upstream="\u001b[2J\\n",kind="tdx"} 1',
    `strongroom_upstream_attested{upstream="${'x'.repeat(65)}",kind="tdx"} 1`,
    'strongroom_upstream_attested{upstream="x",kind="<b>"} 1',
    'strongroom_upstream_attested{upstream="x",kind="tdx"} 1e9',
    'strongroom_upstream_attestation_age_seconds{upstream="x"} 4',
  ])
    expect([line, readAttested(`${line}\n`)]).toEqual([line, []])
})

// One without good evidence is a problem of the host instead, which doctor lists too.
test('goal: doctor shows when each was verified and what failed', () => {
  const cloud = {
    ...{ name: 'cloud', kind: 'tdx', attested: true, last_good_at: '2026-11-26T10:00:00.000Z', age_s: 60 },
    failures: [{ check: 'mr-td', count: 2 }],
  }
  const never = { ...cloud, name: 'far', attested: false, last_good_at: null, age_s: null }
  expect(attestedChecks([cloud, never])).toMatchObject([
    {
      result: 'PASS',
      detail: 'cloud (tdx): verified 2026-11-26T10:00:00.000Z, 60 s ago; failures: mr-td 2',
      remedy: null,
    },
  ])
  expect(attestedChecks(null)).toEqual([])
})
