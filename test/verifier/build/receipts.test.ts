// Goal: the two receipts of a build are of one VM, in order and chained; each check of a receipt is in the group that
// names it, and nothing that was expected of them is left out.

import { beforeAll, describe, expect, test } from 'bun:test'
import { buildQuestion, type SampleResult, sampleResult } from '../../../scripts/rigs/build/result.ts'
import { measurement } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { readEvidence } from '../../../src/attest/provenance/evidence.ts'
import { readProvenance } from '../../../src/attest/provenance/statement.ts'
import type { SnpReport } from '../../../src/attest/report/report.ts'
import { issueSimulatedCrl } from '../../../src/attest/simulator/certificates.ts'
import { type Check, fail, notChecked, pass } from '../../../src/attest/verdict.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex } from '../../../src/base/bytes.ts'
import type { BuildQuestion } from '../../../src/verifier/build/question.ts'
import {
  differenceOf,
  type JudgedReceipts,
  judgeReceipts,
  receiptChecks,
  receiptsMissing,
} from '../../../src/verifier/build/receipts.ts'

const filled = (bytes: number, value: number) => new Uint8Array(bytes).fill(value)
const keysDigest = filled(32, 5)

function reportOf(changes: Partial<SnpReport> = {}): SnpReport {
  const [reportId, hostData] = [filled(32, 1), filled(32, 4)]
  const [measured, idKeyDigest, chipId] = [filled(48, 3), filled(48, 6), filled(64, 2)]
  return { reportId, chipId, measurement: measured, hostData, idKeyDigest, ...changes } as SnpReport
}
type Half = { checks?: readonly Check[]; report?: SnpReport | null; statement?: object | null }
function half({ checks = [], report = reportOf(), statement = {} }: Half, issuedAt: number) {
  const stated = statement === null ? null : { keysDigest, issuedAt, image: { name: 'builder' }, ...statement }
  return { ok: true, simulated: true, checks, report, statement: stated }
}
function judgedOf({ dispatch = {}, completion = {} }: { dispatch?: Half; completion?: Half } = {}): JudgedReceipts {
  const parts = { dispatch: half(dispatch, 1_000), completion: half(completion, 3_500) }
  return { ...parts, keys: null, crl: undefined } as unknown as JudgedReceipts
}
const bad = (checks: readonly Check[]) =>
  checks
    .filter(({ outcome, required }) => outcome === 'fail' || (outcome !== 'pass' && required))
    .map(({ name }) => name)

// Goal: each check of a receipt makes exactly its own group bad.
describe('groups', () => {
  const common = {
    'statement-nonce': 'nonce',
    'statement-age': 'nonce',
    'statement-measurement': 'measurement',
    measurement: 'measurement',
    'expected-image-name': 'measurement',
    'statement-operator-key': 'operator-key',
    'id-key-digest': 'operator-key',
    'expected-operator-key': 'operator-key',
    'statement-report-data': 'report-data',
    'statement-kind': 'kind',
    'expected-source-digest': 'source',
    'report-signature': 'evidence',
    'chain-root': 'evidence',
    vmpl: 'evidence',
    'signature-mldsa65': 'evidence',
    // Only says that another check is bad.
    evidence: null,
  } as const
  const groupOf: Readonly<Record<'dispatch' | 'completion', Readonly<Record<string, string | null>>>> = {
    dispatch: {
      ...common,
      'expected-job-id': 'job',
      // With the order, by judgeOrder; the policy also with the completion's.
      'expected-network-policy': null,
      'expected-order-digest': null,
      'expected-fetch-proxy': null,
      'expected-fetch-mirror': null,
      'expected-fetch-authorities-digest': null,
    },
    completion: {
      ...common,
      'expected-dispatch-digest': 'chained',
      'expected-network-policy': 'network-policy',
      'expected-provenance-digest': 'provenance-digest',
    },
  }
  const passing = (side: 'dispatch' | 'completion') =>
    Object.keys(groupOf[side]).map(name => pass(name, `${name} holds`))
  const good = () =>
    judgedOf({ dispatch: { checks: passing('dispatch') }, completion: { checks: passing('completion') } })

  test('goal: their names, in the order of a verdict', () => {
    const checks = receiptChecks(good())
    expect(bad(checks)).toEqual([])
    expect(checks.map(({ name }) => name)).toEqual([
      'dispatch/evidence',
      'dispatch/measurement',
      'dispatch/operator-key',
      'dispatch/report-data',
      'dispatch/nonce',
      'dispatch/kind',
      'dispatch/job',
      'dispatch/source',
      'completion/evidence',
      'completion/measurement',
      'completion/operator-key',
      'completion/report-data',
      'completion/nonce',
      'completion/kind',
      'completion/chained',
      'completion/source',
      'completion/network-policy',
      'completion/provenance-digest',
      'one-vm',
      'receipts-order',
    ])
  })

  test.each(['dispatch', 'completion'] as const)('goal: each check of the %s, failed or missing', side => {
    for (const [name, group] of Object.entries(groupOf[side])) {
      for (const changed of [fail(name, 'wrong'), notChecked(name, 'missing', true)]) {
        const checks = passing(side).map(check => (check.name === name ? changed : check))
        const found = receiptChecks({ ...good(), [side]: { ...good()[side], checks } })
        expect([name, bad(found)]).toEqual([name, group === null ? [] : [`${side}/${group}`]])
      }
    }
  })
})

describe('two receipts', () => {
  const of = (name: string, changes: { dispatch?: Half; completion?: Half } = {}) => {
    const found = receiptChecks(judgedOf(changes)).find(check => check.name === name)
    return [found?.outcome, found?.reason, found?.required]
  }
  const unread = ['not-checked', 'a receipt cannot be read', true]

  test('goal: are of one VM by keys, image and reports', () => {
    expect(of('one-vm')).toEqual(['pass', '05'.repeat(32), true])
    for (const side of ['dispatch', 'completion'] as const) {
      expect(of('one-vm', { [side]: { statement: { keysDigest: filled(32, 9) } } })).toEqual([
        ...['fail', 'dispatch and completion have different keys', true],
      ])
      expect(of('one-vm', { [side]: { statement: { image: { name: 'other' } } } })).toEqual([
        ...['fail', 'the receipts name different images', true],
      ])
      expect(of('one-vm', { [side]: { report: null } })).toEqual(unread)
      expect(of('one-vm', { [side]: { statement: null } })).toEqual(unread)
      expect(of('receipts-order', { [side]: { statement: null } })).toEqual(unread)
    }
  })

  // Goal: each field that identifies a launch is compared.
  test.each([
    ['reportId', 32],
    ['chipId', 64],
    ['measurement', 48],
    ['hostData', 32],
    ['idKeyDigest', 48],
  ] as const)('goal: with another %s are of two launches', (field, bytes) => {
    const other = reportOf({ [field]: filled(bytes, 0xee) })
    expect([differenceOf(reportOf(), other), differenceOf(other, reportOf())]).toEqual([field, field])
    expect(of('one-vm', { completion: { report: other } })).toEqual([
      ...['fail', `the two reports differ in ${field}`, true],
    ])
  })

  test('goal: differ in nothing else', () => {
    expect(differenceOf(reportOf(), reportOf({ reportData: filled(64, 1), guestSvn: 7, vmpl: 1 }))).toBeNull()
  })

  test('goal: the completion is not older than the dispatch', () => {
    const at = (issuedAt: number) => of('receipts-order', { completion: { statement: { issuedAt } } })
    expect(at(3_500)).toEqual(['pass', '2500 ms between', true])
    expect(at(1_000)).toEqual(['pass', '0 ms between', true])
    expect(at(999)).toEqual(['fail', 'the completion is older than the dispatch', true])
  })
})

test('goal: a result of our own builders without receipts fails; of another builder its report has to do', () => {
  const missing = 'evidence.json has no receipts of the dispatch and of the completion'
  expect(receiptsMissing(true)).toEqual([fail('receipts', `${missing}; this builder always writes both`)])
  expect(receiptsMissing(false)).toEqual([
    notChecked('receipts', `${missing}: another builder made it; its report alone vouches`, false),
  ])
})

// Goal: real receipts over simulated hardware are compared with the provenance, the policy and each other.
describe('real receipts', () => {
  let good: SampleResult
  beforeAll(async () => {
    good = await sampleResult()
  })
  type Changed = { question?: Partial<BuildQuestion>; dispatch?: unknown; completion?: unknown; digest?: Uint8Array }
  async function judge({ question = {}, digest, ...receipts }: Changed = {}) {
    const file = (path: string) => present(good.files.get(path), path)
    const evidence = readEvidence(file('evidence.json'))
    const read = {
      files: { documents: good.files, digests: new Map() },
      provenance: readProvenance(file('provenance.json')),
      provenanceDigest: digest ?? new Uint8Array(Bun.CryptoHasher.hash('sha256', file('provenance.json'))),
      evidence,
    }
    const given = { ...present(evidence.receipts, 'receipts'), ...receipts }
    const judged = await judgeReceipts(given, read, await buildQuestion(good.nonce, question))
    const failed = (side: 'dispatch' | 'completion') => bad(judged[side].checks)
    return { judged, groups: bad(receiptChecks(judged)), first: failed('dispatch'), last: failed('completion') }
  }
  const withoutCrl = (receipt: unknown) => {
    const { crl: _, ...evidence } = (receipt as { evidence: { crl: string } }).evidence
    return { ...(receipt as object), evidence }
  }
  const pins = { measurement: 'required', vmpl: 'required', crl: 'required', tcb: 'required' } as const

  test('goal: good ones pass, with the keys and the revocation list of the completion', async () => {
    const { judged, groups } = await judge()
    expect([groups, judged.dispatch.ok, judged.completion.ok]).toEqual([[], true, true])
    expect(judged.keys).toMatchObject({ ed25519: expect.any(Uint8Array), mldsa65: expect.any(Uint8Array) })
    expect(judged.crl?.length).toBeGreaterThan(100)
    expect(toHex(judged.dispatch.report?.measurement ?? filled(0, 0))).toBe(toHex(measurement))
  })

  test('goal: each expectation fails by its name', async () => {
    const nonce = filled(16, 0xaa)
    expect((await judge({ question: { nonce } })).groups).toEqual(['dispatch/nonce', 'completion/nonce'])
    expect((await judge({ question: { nonce: 'any' } })).groups).toEqual([])
    expect((await judge({ digest: filled(32, 1) })).groups).toEqual(['completion/provenance-digest'])
    expect((await judge({ question: { roots: [] } })).groups).toEqual(['dispatch/evidence', 'completion/evidence'])
    const other = await sampleResult({ completion: { networkPolicy: 'open', dispatchDigest: filled(32, 1) } })
    expect((await judge({ completion: other.completion })).groups).toEqual([
      ...['completion/chained', 'completion/network-policy'],
    ])
  })

  test('goal: any nonce is still the same one in both', async () => {
    const short = await sampleResult({ completion: { nonce: filled(16, 1) } })
    expect((await judge({ question: { nonce: 'any' }, completion: short.completion })).groups).toEqual([
      'completion/nonce',
    ])
  })

  test('goal: a receipt without a revocation list fails, unless the pin is waived or the caller has a list', async () => {
    const { dispatch, completion, crl } = {
      dispatch: withoutCrl(good.dispatch),
      completion: withoutCrl(good.completion),
      crl: present((await judge()).judged.crl, 'a list'),
    }
    const bare = await judge({ dispatch, completion })
    expect(bare.groups).toEqual(['dispatch/evidence', 'completion/evidence'])
    expect(bare.judged.crl).toBeUndefined()
    expect((await judge({ dispatch, completion, question: { pins: { ...pins, crl: 'any' } } })).groups).toEqual([])
    expect((await judge({ dispatch, completion, question: { crl } })).groups).toEqual([])
    // The caller's list counts in place of the receipts' own.
    const { authority } = await simulatedPlatform('genoa')
    const [thisUpdate, nextUpdate] = [new Date('2020-01-01T00:00:00Z'), new Date('2020-02-01T00:00:00Z')]
    const old = await issueSimulatedCrl(authority, { thisUpdate, nextUpdate, revoked: [] })
    expect((await judge({ question: { crl: old } })).groups).toEqual(['dispatch/evidence', 'completion/evidence'])
  })

  test('goal: floors are required of both, unless they are waived', async () => {
    const old = await sampleResult({ report: { report: { platformInfo: 1n } } })
    const { dispatch, completion } = old
    expect((await judge({ dispatch, completion })).first).toContain('tcb-floor-alias-check')
    expect((await judge({ dispatch, completion })).last).toContain('tcb-floor-alias-check')
    const waived = await judge({ dispatch, completion, question: { pins: { ...pins, tcb: 'any' } } })
    expect([...waived.first, ...waived.last].filter(name => name.startsWith('tcb-floor'))).toEqual([])
  })

  test('goal: what is no receipt is a bad one, with a list of the caller too', async () => {
    const crl = filled(9, 1)
    for (const junk of [null, 1, 'x', [], {}, { evidence: null }, { evidence: 1 }]) {
      for (const question of [{}, { crl }]) {
        const { judged, groups } = await judge({ dispatch: junk, completion: junk, question })
        expect([judged.dispatch.ok, judged.completion.ok, judged.keys, judged.crl]).toEqual([
          false,
          false,
          null,
          undefined,
        ])
        expect(groups).toEqual(expect.arrayContaining(['dispatch/evidence', 'completion/evidence', 'one-vm']))
      }
    }
  })
})
