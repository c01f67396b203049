// GET /attestation over HTTP: the contract's rows, five receipts or none, one answer per nonce.

import { afterAll, describe, expect, test } from 'bun:test'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import {
  type Available,
  clearRig,
  gatewayQuestion,
  newNonce,
  openRig,
  openSample,
  rigDir,
  workloads,
} from '../../../scripts/rigs/gateway/attestation.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { ATTESTED_WORKLOADS, AttestationResponse } from '../../../src/contract/http/attestation.ts'
import { gatewayError } from '../../../src/contract/http/gateway-error.ts'
import { GatewayError } from '../../../src/contract/http/inference.ts'
import { noEvidenceOnHost } from '../../../src/inference/attestation/attester.ts'
import { countNonces } from '../../../src/store/ledger/nonce.query.ts'
import { verifyGateway } from '../../../src/verifier/verify-gateway.ts'

afterAll(clearRig)

const sample = await openSample()
afterAll(() => sample[Symbol.dispose]())
const { nonce, origin, answer } = sample

describe('the answer', () => {
  test('is exactly what the contract says', () => {
    // Goal: these fields and no others, five entries in order, each with target and workload alike.
    const document = JSON.parse(answer)
    expect([...Value.Errors(AttestationResponse, document)]).toEqual([])
    expect(Object.keys(document)).toEqual(['schemaVersion', 'scope', 'nonce', 'operationalStatus', 'receipts'])
    const { receipts, ...rest } = document
    const scope = 'launch-or-admission-only'
    expect(rest).toEqual({ schemaVersion: 1, scope, nonce, operationalStatus: 'not-verified' })
    const names = receipts.map((receipt: Record<string, unknown>) => [
      Object.keys(receipt).join(),
      receipt.target,
      receipt.workload,
    ])
    expect(names).toEqual(ATTESTED_WORKLOADS.map(name => ['target,workload,receipt', name, name]))
  })

  test('verifies against everything that a relying party can expect', async () => {
    // Goal: nonce, evidence, CRL, measurement, operator key, identity, allowlist, admission and TLS key all pass for a
    // relying party that trusts the simulation.
    const verdict = await verifyGateway(new TextEncoder().encode(answer), await gatewayQuestion(nonce))
    expect(verdict.checks.filter(check => check.outcome !== 'pass')).toEqual([])
    expect(verdict).toMatchObject({ ok: true, simulated: true })
    expect(verdict.receipts).toHaveLength(5)
  })
})

describe('refusals', () => {
  const good = newNonce()

  // Goal: every row of the contract over the wire, each with an error body and nothing else.
  test.each([
    ['', {}, 400, 'invalid_request'],
    [`?nonce=${good}`, { 'X-Attestation-Nonce': good }, 400, 'invalid_request'],
    [`?nonce=${good}=`, {}, 400, 'invalid_request'],
    [`?nonce=${good.slice(2)}`, {}, 400, 'invalid_request'],
    [`?nonce=${nonce}`, {}, 409, 'conflict'],
    ['', { 'X-Attestation-Nonce': nonce }, 409, 'conflict'],
  ] as [string, Record<string, string>, number, string][])('%j %j is %d %s', async (query, headers, status, code) => {
    const { status: found, body } = await sample.rig.get(query, headers)
    expect([found, JSON.parse(body).error.code]).toEqual([status, code])
    expect(Value.Check(GatewayError, JSON.parse(body))).toBe(true)
  })

  test('a refused nonce is still unused', async () => {
    // Goal: what is refused for its form uses nothing up; the same nonce then works once.
    expect((await sample.rig.get(`?nonce=${good}`, { 'X-Attestation-Nonce': good })).status).toBe(400)
    const statuses = [await sample.rig.get('', { 'X-Attestation-Nonce': good }), await sample.rig.get(`?nonce=${good}`)]
    expect(statuses.map(({ status }) => status)).toEqual([200, 409])
  })

  test('other methods are refused without using the nonce', async () => {
    // Goal: only GET makes evidence.
    const own = newNonce()
    const response = await fetch(`${sample.rig.url}/attestation?nonce=${own}`, { method: 'POST', body: 'x' })
    expect([response.status, response.headers.get('allow')]).toEqual([405, 'GET'])
    expect((await sample.rig.get(`?nonce=${own}`)).status).toBe(200)
  })
})

describe('one answer per nonce', () => {
  test('of many requests at the same time exactly one is answered', async () => {
    // Goal: no race lets one nonce into two sets of receipts.
    const own = newNonce()
    const answers = await Promise.all(Array.from({ length: 8 }, () => sample.rig.get(`?nonce=${own}`)))
    expect(answers.map(answer => answer.status).sort()).toEqual([200, ...Array.from({ length: 7 }, () => 409)])
  })

  test('a restart remembers', async () => {
    // Goal: the same database under a new process refuses what the old one answered.
    const database = join(rigDir(), 'endpoint.db')
    const own = newNonce()
    for (const expected of [200, 409]) {
      using rig = await openRig({ database })
      expect((await rig.get(`?nonce=${own}`)).status).toBe(expected)
    }
  })
})

describe('503, never partial', () => {
  const unavailable = gatewayError('attestation_unavailable', 'Fresh attestation is not available.')

  test('a host without evidence says so and leaves nonces alone', async () => {
    // Goal: outside of a VM on SEV-SNP nothing is answered, and nothing of the reason reaches the client.
    const database = join(rigDir(), 'unavailable.db')
    const own = newNonce()
    {
      const logged: string[] = []
      using rig = await openRig({ database, origin: noEvidenceOnHost, logged })
      for (let tries = 0; tries < 3; tries += 1) {
        const { status, body } = await rig.get(`?nonce=${own}`)
        expect([status, JSON.parse(body)]).toEqual([503, unavailable])
      }
      // The operator reads once what to do about it.
      expect(logged).toHaveLength(1)
      expect(logged[0]).toContain('inside a measured SEV-SNP VM')
    }
    using rig = await openRig({ database })
    expect((await rig.get(`?nonce=${own}`)).status).toBe(200)
  })

  let reports = 0
  const zeros: Available['evidence'] = reportData => origin.evidence(reportData, new Uint8Array(32))
  // Goal: one missing, stale or foreign piece of evidence among five prevents the attestation and still uses up the
  // nonce.
  test.each([
    ['the source fails at the last receipt', { origin: { ...origin, evidence: lastFails } }],
    ['the report is over other data', { origin: { ...origin, evidence: foreign } }],
    ['HOST_DATA is not the allowlist', { origin: { ...origin, evidence: zeros } }],
    ['another measurement', { origin: { ...origin, image: { name: 'x', measurement: new Uint8Array(48) } } }],
    ['another operator key', { origin: { ...origin, operatorKey: new Uint8Array(48) } }],
    ['a workload is not admitted', { describeWorkloads: refuse }],
    ['four workloads', { describeWorkloads: () => ({ ...workloads, workloads: workloads.workloads.slice(1) }) }],
    ['another order', { describeWorkloads: () => ({ ...workloads, workloads: workloads.workloads.toReversed() }) }],
  ])('%s', async (_, options) => {
    using rig = await openRig(options)
    const own = newNonce()
    const { status, body } = await rig.get(`?nonce=${own}`)
    expect([status, JSON.parse(body)]).toEqual([503, unavailable])
    expect((await rig.get(`?nonce=${own}`)).status).toBe(409)
  })

  async function lastFails(...given: Parameters<Available['evidence']>) {
    reports += 1
    if (reports === 5) throw new Error('the firmware is busy')
    return origin.evidence(...given)
  }

  function foreign(_: Uint8Array, hostData: Uint8Array) {
    return origin.evidence(new Uint8Array(64), hostData)
  }

  function refuse(): never {
    throw new Error('inference-worker was not admitted')
  }

  test('a full ledger', async () => {
    // Goal: no room for further nonces is 503 for new ones and 409 for used ones.
    using rig = await openRig({ noncesMax: 1 })
    const own = newNonce()
    const statuses = []
    for (const text of [own, newNonce(), own]) statuses.push((await rig.get(`?nonce=${text}`)).status)
    expect(statuses).toEqual([200, 503, 409])
  })
})

test('goal: 80 networks that ask as fast as they can keep a stranger waiting for one turn, not for a day', async () => {
  const clock = createManualClock(systemClock.nowMs())
  const gate = Promise.withResolvers<void>()
  let isHeld = false
  const order: string[] = []
  // No evidence for those who flood: it costs nothing here, and their nonces are used all the same.
  const describeWorkloads = async () => {
    if (!isHeld) throw new Error('no workload')
    await gate.promise
    return workloads
  }
  using rig = await openRig({ clock, callersMax: 64, noncesMax: 6_400, describeWorkloads })
  const ask = async (address: string) => {
    const { status } = await rig.endpoint(
      new Request(`http://gateway.example/attestation?nonce=${newNonce()}`),
      address,
    )
    if (status === 200) order.push(address)
    return status
  }
  const wave = (rounds: number) =>
    Array.from({ length: 80 * rounds }, (_, at) => ask(`${10 + (at % 80)}.1.1.${Math.floor(at / 80)}`))
  // As many as had filled the nonces that are kept.
  for (let count = 0; count < 10; count += 1) await Promise.all(wave(10))
  expect(countNonces(rig.store.ledger.db)).toBeGreaterThan(500)
  isHeld = true
  const flood = wave(2)
  const strangers = [ask('198.51.100.1'), ask('2001:db8::1')]
  gate.resolve()
  expect(await Promise.all(strangers)).toEqual([200, 200])
  // The one whose turn it was, and then those who had asked for none.
  expect(order.slice(1, 3)).toEqual(['198.51.100.1', '2001:db8::1'])
  isHeld = false
  expect(new Set(await Promise.all(flood))).toEqual(new Set([200, 503]))
})

describe('the queue', () => {
  test('is bounded, and who is refused keeps the nonce', async () => {
    // Goal: beyond the cap callers get 503 at once; those inside are served one after the other.
    const gate = Promise.withResolvers<void>()
    let active = 0
    let activeMax = 0
    const evidence: Available['evidence'] = async (...given) => {
      active += 1
      activeMax = Math.max(activeMax, active)
      await gate.promise
      const made = await origin.evidence(...given)
      active -= 1
      return made
    }
    using rig = await openRig({ origin: { ...origin, evidence }, callersMax: 3 })
    const ask = (text: string) => rig.endpoint(new Request(`http://gateway.example/attestation?nonce=${text}`))
    const inside = [ask(newNonce()), ask(newNonce()), ask(newNonce())]
    const own = newNonce()
    expect((await ask(own)).status).toBe(503)
    gate.resolve()
    expect((await Promise.all(inside)).map(response => response.status)).toEqual([200, 200, 200])
    expect([(await ask(own)).status, activeMax]).toEqual([200, 1])
  })

  test('ends each wait, and a stuck source is not asked again', async () => {
    // Goal: a source that hangs costs every caller its time limit and no more, and one call to it only.
    const clock = createManualClock(systemClock.nowMs())
    const stuck = Promise.withResolvers<void>()
    const entered = Promise.withResolvers<void>()
    let calls = 0
    const evidence: Available['evidence'] = async (...given) => {
      calls += 1
      entered.resolve()
      await stuck.promise
      return origin.evidence(...given)
    }
    using rig = await openRig({ origin: { ...origin, evidence }, clock, timeoutMs: 1000, callersMax: 2 })
    const ask = () => rig.endpoint(new Request(`http://gateway.example/attestation?nonce=${newNonce()}`))
    const waiting = [ask(), ask()]
    await entered.promise
    await clock.sleepers(2)
    clock.advance(1000)
    expect((await Promise.all(waiting)).map(response => response.status)).toEqual([503, 503])
    const third = ask()
    await clock.sleepers(1)
    clock.advance(1000)
    expect([(await third).status, calls]).toEqual([503, 1])
    stuck.resolve()
    // The one that hung ends after its first receipt, and those behind it have left.
    await until('there is room again', 60_000, async () => (await ask()).status === 200)
    expect(calls).toBe(6)
  })
})
