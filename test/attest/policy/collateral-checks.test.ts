// Goal: fields about what came beside a report are never passed over: the holder of the key, the list, the table.

import { expect, test } from 'bun:test'
import { guidBytes } from '../../../src/attest/encoding/guid.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { appraise } from '../../../src/attest/policy/appraise.ts'
import type { CollateralFacts } from '../../../src/attest/policy/collateral-checks.ts'
import type { Policy } from '../../../src/attest/policy/policy.ts'
import { readCertificateTable } from '../../../src/attest/report/certificate-table.ts'
import { identifyReport } from '../../../src/attest/report/identify.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { verdict } from '../../../src/attest/verdict.ts'
import { verifyEvidence } from '../../../src/attest/verify/evidence.ts'
import { concat } from '../../../src/base/bytes.ts'
import { vector, vectorsAsOf } from '../../rigs/attest/chain-vectors.ts'
import { laxPolicy } from '../../rigs/attest/exact-policy.ts'
import { readReport } from '../../rigs/attest/report-vectors.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const identity = identifyReport(decodeReport(await readReport('milan-v3.bin')), null)
if (identity.kind !== 'known') throw new Error(identity.reason)
const genuine = identity

const asOfMs = Date.parse('2026-11-20T00:00:00Z')
const dayMs = 86_400_000
const guid = '63da758d-e664-4564-adc5-f4b93be8accd'
const nothing: CollateralFacts = { asOfMs, holder: null, crlThisUpdateMs: null, certificateEntries: null }

function judged(policy: Partial<Policy>, beside: Partial<CollateralFacts> | null) {
  const checks = appraise(genuine, { ...laxPolicy, ...policy }, beside === null ? null : { ...nothing, ...beside })
  const bad = checks.filter(({ outcome, required }) => outcome === 'fail' || (required && outcome !== 'pass'))
  return { ok: verdict(checks).ok, bad: bad.map(({ name, outcome }) => `${name} ${outcome}`) }
}

const good = { ok: true, bad: [] }
const bad = (name: string, outcome: 'fail' | 'not-checked') => ({ ok: false, bad: [`${name} ${outcome}`] })

test('goal: without the evidence that a field is about, the verdict is not good', () => {
  for (const beside of [null, {}]) {
    expect(judged({}, beside)).toEqual(good)
    expect(judged({ cspIds: ['amazon'] }, beside)).toEqual(bad('csp-id', 'not-checked'))
    expect(judged({ maxCrlAgeDays: 3650 }, beside)).toEqual(bad('crl-age', 'not-checked'))
    expect(judged({ certificateEntries: [guid] }, beside)).toEqual(bad('certificate-entries', 'not-checked'))
  }
})

test('goal: a VLEK of another provider fails, and a VCEK, which names none', () => {
  const policy = { cspIds: ['amazon', 'azure'] }
  expect(judged(policy, { holder: { kind: 'vlek', cspId: 'azure' } })).toEqual(good)
  for (const cspId of ['Azure', 'azure ', '']) {
    expect(judged(policy, { holder: { kind: 'vlek', cspId } })).toEqual(bad('csp-id', 'fail'))
  }
  expect(judged(policy, { holder: { kind: 'vcek', hwId: new Uint8Array(64) } })).toEqual(bad('csp-id', 'fail'))
})

test('goal: a list that is older than so many days fails, by the time of verification', () => {
  const aged = (days: number, ms = 0) => ({ crlThisUpdateMs: asOfMs - days * dayMs - ms })
  expect(judged({ maxCrlAgeDays: 7 }, aged(7))).toEqual(good)
  expect(judged({ maxCrlAgeDays: 7 }, aged(7, 1))).toEqual(bad('crl-age', 'fail'))
  expect(judged({ maxCrlAgeDays: 0 }, aged(0))).toEqual(good)
  expect(judged({ maxCrlAgeDays: 7 }, { ...aged(1), asOfMs: Number.NaN })).toEqual(bad('crl-age', 'fail'))
})

test('goal: every entry that the policy names has to be in the table', () => {
  const other = 'c0b406a4-a803-4952-9743-3fb6014cd0ae'
  expect(judged({ certificateEntries: [guid] }, { certificateEntries: [other, guid] })).toEqual(good)
  const missing = judged({ certificateEntries: [guid, other] }, { certificateEntries: [guid] })
  expect(missing).toEqual(bad('certificate-entries', 'fail'))
})

test('goal: the provider of a genuine VLEK is the one that its certificate names', async () => {
  const ask = async (cspIds: readonly string[]) => {
    const { checks } = await verifyEvidence({
      report: await readReport('milan-v3-vlek.bin'),
      vek: await vector('reports/milan-v3-vlek.vlek.der'),
      asOf: new Date('2025-06-01T00:00:00Z'),
      requireCrl: false,
      policy: { ...laxPolicy, cspIds },
    })
    return checks.find(({ name }) => name === 'csp-id')
  }
  const wrong = await ask(['somebody'])
  const named = wrong?.reason.split(' is not among')[0] ?? ''
  expect([wrong?.outcome, named.length > 0]).toEqual(['fail', true])
  expect(await ask(['somebody', named])).toMatchObject({ outcome: 'pass', reason: named })
  const { ok } = await verifyEvidence({
    report: await readReport('genoa-v5.bin'),
    vek: await vector('reports/genoa-v5.chain.pem'),
    asOf: vectorsAsOf,
    requireCrl: false,
    policy: { ...laxPolicy, maxCrlAgeDays: 3650 },
  })
  expect(ok).toBe(false)
})

test('goal: a table gives its entries, and one that lies about their places is refused', () => {
  const table = new Uint8Array(24 * 2 + 5)
  const view = new DataView(table.buffer)
  table.set(guidBytes(guid))
  view.setUint32(16, 48, true)
  view.setUint32(20, 5, true)
  table.set([1, 2, 3, 4, 5], 48)
  expect(readCertificateTable(table)).toEqual([{ guid, bytes: Uint8Array.of(1, 2, 3, 4, 5) }])
  expect(readCertificateTable(new Uint8Array(24))).toEqual([])
  // An entry of no bytes, which points nowhere, is no entry, and hides none behind it.
  const empty = new Uint8Array(24 * 3 + 1)
  const places = new DataView(empty.buffer)
  empty.set(guidBytes('92f81bc3-5811-4d3d-97ff-d19f88dc67ea'))
  places.setUint32(16, 0xffff_ffff, true)
  empty.set(guidBytes(guid), 24)
  places.setUint32(40, 72, true)
  places.setUint32(44, 1, true)
  expect(readCertificateTable(empty)).toEqual([{ guid, bytes: new Uint8Array(1) }])
  for (let length = 0; length < 48; length += 1) {
    expect(() => readCertificateTable(table.subarray(0, length))).toThrow('certificate table: ')
  }
  expect(() => readCertificateTable(table.subarray(0, 52))).toThrow('ends after the table')
  view.setUint32(16, 0xffff_ffff, true)
  view.setUint32(20, 0xffff_ffff, true)
  expect(() => readCertificateTable(table)).toThrow('ends after the table')
  const twice = new Uint8Array(24 * 3)
  twice.set(guidBytes(guid))
  twice.set(guidBytes(guid), 24)
  expect(() => readCertificateTable(twice)).toThrow('stands in it twice')
  const many = new Uint8Array(24 * 66)
  for (let at = 0; at < 65; at += 1) many.set([at + 1], at * 24)
  expect(() => readCertificateTable(many)).toThrow('more than 64 entries')
  expect(() => readCertificateTable(new Uint8Array(256 * 1024 + 1))).toThrow('262145 bytes')
})

test('goal: a hostile certificate table ends as Malformed, or as entries inside of it', async () => {
  const entry = (name: string, offset: number, length: number) => {
    const bytes = new Uint8Array(24)
    bytes.set(guidBytes(name))
    new DataView(bytes.buffer).setUint32(16, offset, true)
    new DataView(bytes.buffer).setUint32(20, length, true)
    return bytes
  }
  const other = '92f81bc3-5811-4d3d-97ff-d19f88dc67ea'
  const samples = [
    concat(entry(guid, 72, 5), entry(other, 77, 3), new Uint8Array(24 + 8)),
    concat(entry(other, 0xffff_ffff, 0), entry(guid, 72, 1), new Uint8Array(24 + 1)),
  ]
  const counts = { read: 0, malformed: 0 }
  await fuzz({ samples, count: 20_000, sizeBytesMax: 300 }, bytes => {
    try {
      const entries = readCertificateTable(bytes)
      for (const { bytes: own } of entries) expect([own.length > 0, own.length <= bytes.length]).toEqual([true, true])
      counts.read += 1
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
      counts.malformed += 1
    }
  })
  expect(Math.min(counts.read, counts.malformed)).toBeGreaterThan(100)
})
