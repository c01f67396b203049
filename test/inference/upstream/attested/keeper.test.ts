// Goal: evidence counts for its interval and not longer, is asked for again by interval, and sooner while it is bad.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../../scripts/rigs/clock.ts'
import { target } from '../../../../scripts/rigs/gateway/server.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import type { UpstreamAttestation } from '../../../../src/inference/upstream/attested/attestation.ts'
import { AttestedUpstreams } from '../../../../src/inference/upstream/attested/keeper.ts'
import type { Attested } from '../../../../src/inference/upstream/attested/verify.ts'

const minuteMs = 60_000
const attestation: UpstreamAttestation = {
  kind: 'tdx',
  policy: '{}',
  path: '/attestation',
  intervalMs: 30 * minuteMs,
  collateralFile: null,
  simulatedRoot: null,
}
const good = (untilMs: number | null = null): Attested => ({ ok: true, spkiSha256: 'ab'.repeat(32), untilMs })
const bad: Attested = { ok: false, check: 'mr-td', reason: 'because' }

function rig(answers: readonly Attested[]) {
  const clock = createManualClock()
  let asked = 0
  const verify = async () => answers[Math.min(asked++, answers.length - 1)] ?? bad
  const keeper = new AttestedUpstreams({ clock, random: () => new Uint8Array(32), log: silentLogger, verify })
  const followed = keeper.follow(target('https://up:1/v1', { attestation }))
  return { clock, keeper, followed, asked: () => asked }
}

test('goal: an upstream that need not show evidence stays as it is', () => {
  const { keeper } = rig([])
  const plain = target('http://up:1/v1')
  expect(keeper.follow(plain)).toBe(plain)
})

test('goal: nothing counts before the first verification, and a bad one ends a good one', async () => {
  const { keeper, followed } = rig([good(), bad])
  expect(followed.attestedKey).toBe(null)
  expect(await keeper.check(followed.name)).toBe(true)
  expect(followed.attestedKey).toBe('ab'.repeat(32))
  expect(await keeper.check(followed.name)).toBe(false)
  expect(followed.attestedKey).toBe(null)
})

test('goal: it is asked again after its interval, and sooner and sooner apart while it is bad', async () => {
  const { clock, keeper, followed, asked } = rig([good(), bad, bad, good()])
  const stopping = new AbortController()
  keeper.start(stopping.signal)
  await clock.sleepers(1)
  expect([asked(), clock.pending()]).toEqual([1, [30 * minuteMs]])
  await clock.elapse(30 * minuteMs)
  await clock.sleepers(1)
  expect([asked(), followed.attestedKey]).toEqual([2, null])
  expect(clock.pending()[0]).toBeLessThanOrEqual(minuteMs)
  await clock.elapse(3 * minuteMs)
  await clock.sleepers(1)
  expect([asked() >= 4, followed.attestedKey]).toEqual([true, 'ab'.repeat(32)])
  stopping.abort()
})

test('goal: a verification that nobody repeats ends by itself, and collateral ends it sooner', async () => {
  const stale = rig([good()])
  await stale.keeper.check(stale.followed.name)
  stale.clock.advance(31 * minuteMs)
  expect(stale.followed.attestedKey).not.toBe(null)
  stale.clock.advance(minuteMs)
  expect(stale.followed.attestedKey).toBe(null)
  const short = createManualClock().nowMs() + 5 * minuteMs
  const { clock, keeper, followed } = rig([good(short)])
  const stopping = new AbortController()
  keeper.start(stopping.signal)
  await clock.sleepers(1)
  expect(clock.pending()).toEqual([5 * minuteMs])
  clock.advance(5 * minuteMs + 1)
  expect(followed.attestedKey).toBe(null)
  stopping.abort()
})

test('goal: whoever asks while a verification is under way gets its outcome', async () => {
  const { keeper, followed, asked } = rig([good()])
  expect(await Promise.all([keeper.check(followed.name), keeper.check(followed.name)])).toEqual([true, true])
  expect(asked()).toBe(1)
  expect(await keeper.check('unknown')).toBe(true)
})
