// Goal: the report of evidence.json is over this provenance and this nonce, by the VM of the receipts, and may be
// missing only for a nonce that it could not state.

import { beforeAll, describe, expect, test } from 'bun:test'
import { buildQuestion, type SampleResult, sampleResult } from '../../../scripts/rigs/build/result.ts'
import { operatorKey, simulatedSource } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { type ReadEvidence, readEvidence } from '../../../src/attest/provenance/evidence.ts'
import { isBroken } from '../../../src/attest/verdict.ts'
import { present } from '../../../src/base/assert.ts'
import { concat, fromBase64Url, toHex } from '../../../src/base/bytes.ts'
import { judgeReport } from '../../../src/verifier/build/evidence.ts'
import type { BuildQuestion } from '../../../src/verifier/build/question.ts'
import type { JudgedReceipts } from '../../../src/verifier/build/receipts.ts'

let good: SampleResult
beforeAll(async () => {
  good = await sampleResult()
})
const fileOf = (path: string) => present(good.files.get(path), path)
const provenanceDigest = () => new Uint8Array(Bun.CryptoHasher.hash('sha256', fileOf('provenance.json')))
/** The revocation list of the completion. */
const crl = () => present(fromBase64Url(present(good.completion.evidence.crl, 'a list')) ?? undefined, 'base64url')
const filled = (bytes: number, value: number) => new Uint8Array(bytes).fill(value)

type Case = {
  readonly evidence?: ReadEvidence | null
  readonly question?: Partial<BuildQuestion>
  readonly receipts?: JudgedReceipts | null
  readonly digest?: Uint8Array | null
}
async function judge({ evidence, question = {}, receipts = null, digest = provenanceDigest() }: Case = {}) {
  const read = {
    files: { documents: new Map(), digests: new Map() },
    provenance: null,
    provenanceDigest: digest,
    evidence: evidence === undefined ? readEvidence(fileOf('evidence.json')) : evidence,
  }
  const found = await judgeReport(read, await buildQuestion(good.nonce, { crl: crl(), ...question }), receipts)
  const of = (name: string) => {
    const { outcome, reason, required } = found?.checks.find(check => check.name === `report/${name}`) ?? {}
    return [outcome, reason, required]
  }
  return { found, of, bad: found?.checks.filter(isBroken).map(({ name }) => name) }
}
/** Evidence whose REPORT_DATA is exactly this, or is read from no report. */
async function over(reportData: Uint8Array): Promise<ReadEvidence> {
  const read = readEvidence(fileOf('evidence.json'))
  if (read.evidence?.kind !== 'snp') throw new Error('the sample has a report')
  const { report, vek } = await simulatedSource({
    reportData,
    report: { idKeyDigest: operatorKey, platformInfo: 0x21n },
  })(reportData)
  return { ...read, evidence: { kind: 'snp', snp: { ...read.evidence.snp, report, vek } } }
}

test('goal: a good report passes with every line, and evidence that cannot be read has none', async () => {
  const { found, bad } = await judge()
  expect([found?.ok, bad, found?.simulated, found?.tpm]).toEqual([true, [], true, null])
  expect(found?.checks.map(({ name, outcome }) => `${name} ${outcome}`)).toEqual([
    'report/evidence pass',
    'report/tcb-floor pass',
    'report/measurement pass',
    'report/operator-key not-checked',
    'report/report-data pass',
    'report/nonce pass',
    'report/provenance-digest pass',
    'report/platform pass',
  ])
  expect((await judge({ evidence: null })).found).toBeNull()
})

describe('without a report', () => {
  const none = () => ({ ...readEvidence(fileOf('evidence.json')), evidence: null })
  test('goal: it may be left out for a nonce of fewer than 16 bytes alone', async () => {
    for (const bytes of [1, 15]) {
      const { found } = await judge({ evidence: none(), question: { nonce: filled(bytes, 1) } })
      expect(found).toEqual({
        ok: true,
        checks: [
          {
            name: 'report/evidence',
            outcome: 'not-checked',
            reason: `left out for a nonce of ${bytes} bytes: other verifiers want 16`,
            required: false,
          },
        ],
        details: [],
        report: null,
        simulated: false,
        tpm: null,
      })
    }
    const missing = 'evidence.json has no report, which is left out only for a nonce of fewer than 16 bytes'
    for (const nonce of [filled(16, 1), 'any'] as const) {
      const { found, of } = await judge({ evidence: none(), question: { nonce } })
      expect([found?.ok, of('evidence'), found?.simulated]).toEqual([false, ['fail', missing, true], false])
    }
  })

  test('goal: where any nonce is accepted that of the completion decides', async () => {
    const completion = (bytes: number) =>
      ({ completion: { statement: { nonce: filled(bytes, 1) }, report: null } }) as unknown as JudgedReceipts
    const of = async (bytes: number) =>
      (await judge({ evidence: none(), receipts: completion(bytes), question: { nonce: 'any' } })).found?.ok
    expect([await of(2), await of(16)]).toEqual([true, false])
  })
})

// Goal: REPORT_DATA is the digest of the provenance, 16 bytes of nonce and zeros.
describe('what is signed', () => {
  test('goal: another nonce, digest or more than both fails', async () => {
    const nonce = filled(16, 0xaa)
    const other = await judge({ question: { nonce } })
    expect([other.found?.ok, other.bad, other.of('nonce')[1]]).toEqual([
      ...[false, ['report/nonce'], `the nonce is ${toHex(good.nonce)}, not ${'aa'.repeat(16)}`],
    ])
    const digest = await judge({ digest: filled(32, 1) })
    expect([digest.bad, digest.of('provenance-digest')[1]]).toEqual([
      ['report/provenance-digest'],
      `the report is over ${toHex(provenanceDigest())}, the file is ${'01'.repeat(32)}`,
    ])
    const missing = await judge({ digest: null })
    expect([missing.bad, missing.of('provenance-digest')[1]]).toEqual([
      ['report/provenance-digest'],
      expect.stringMatching(/, the file is missing$/),
    ])
    const last = concat(filled(15, 0), filled(1, 1))
    const more = await judge({ evidence: await over(concat(provenanceDigest(), good.nonce, last)) })
    expect([more.bad, more.of('report-data')[1]]).toEqual([
      ...[['report/report-data'], 'more than a digest and a nonce of 16 bytes stands in it'],
    ])
  })

  test('goal: any nonce is said, and none at all', async () => {
    const any = await judge({ question: { nonce: 'any' } })
    expect([any.bad, any.of('nonce')]).toEqual([
      [],
      ['not-checked', `the nonce is ${toHex(good.nonce)}, and none is expected: this result may be old`, false],
    ])
    const evidence = await over(concat(provenanceDigest(), filled(32, 0)))
    expect((await judge({ evidence, question: { nonce: 'any' } })).of('nonce')[1]).toStartWith(
      'there is no nonce in it',
    )
    expect((await judge({ evidence })).of('nonce')).toEqual([
      ...['fail', `there is no nonce in it, not ${toHex(good.nonce)}`, true],
    ])
  })

  test('goal: without a report that can be read nothing of it is checked, which no verdict passes', async () => {
    const read = readEvidence(fileOf('evidence.json'))
    if (read.evidence?.kind !== 'snp') throw new Error('the sample has a report')
    const cut = { ...read, evidence: { kind: 'snp', snp: { ...read.evidence.snp, report: filled(7, 1) } } } as const
    const { found, of } = await judge({ evidence: cut })
    expect([found?.ok, found?.report]).toEqual([false, null])
    for (const name of ['report-data', 'nonce', 'provenance-digest']) {
      expect([name, of(name)]).toEqual([name, ['not-checked', 'there is no report', true]])
    }
  })
})

test('goal: evidence of a paravisor that cannot be read is a failed line, and is not simulated', async () => {
  const bytes = filled(7, 1)
  const evidence = { kind: 'az-snp', hclReport: bytes, vek: bytes, quote: bytes, signature: bytes, pcrs: [] } as const
  const { found, of, bad } = await judge({ evidence: { ...readEvidence(fileOf('evidence.json')), evidence } })
  expect([found?.ok, found?.simulated, found?.report, found?.tpm, of('evidence')[0]]).toEqual([
    ...[false, false, null, null, 'fail'],
  ])
  expect(bad).toEqual([
    ...['report/evidence', 'report/report-data', 'report/nonce', 'report/provenance-digest', 'report/platform'],
  ])
})

test('goal: it is of the VM of the completion', async () => {
  const report = present((await judge()).found?.report, 'a report')
  const completion = (of: object | null) =>
    ({ completion: { report: of, statement: { nonce: good.nonce } } }) as unknown as JudgedReceipts
  const line = async (of: object | null) => (await judge({ receipts: completion(of) })).of('one-vm')
  expect((await line(report))[0]).toBe('pass')
  expect(await line({ ...report, reportId: filled(32, 0xee) })).toEqual([
    ...['fail', "it differs from the completion's report in reportId", true],
  ])
  expect(await line(null)).toEqual(['not-checked', 'a report cannot be read', true])
})

test('goal: a platform is simulated where its root is, and nowhere else', async () => {
  const read = readEvidence(fileOf('evidence.json'))
  const real = await judge({ evidence: { ...read, platform: 'snp' } as unknown as ReadEvidence })
  expect([real.bad, real.of('platform')[1]]).toEqual([
    ['report/platform'],
    'evidence.json names snp, but its root is simulated',
  ])
  expect((await judge()).of('platform')).toEqual(['pass', 'simulated', true])
})

test('goal: floors and revocation lists are required unless they are waived', async () => {
  const pins = { measurement: 'required', vmpl: 'required', crl: 'required', tcb: 'required' } as const
  expect((await judge({ question: { crl: undefined } })).bad).toEqual(['report/evidence'])
  const receipts = { crl: crl(), completion: { report: null, statement: null } } as unknown as JudgedReceipts
  expect((await judge({ receipts, question: { crl: undefined } })).bad).toEqual(['report/one-vm'])
  expect((await judge({ question: { crl: undefined, pins: { ...pins, crl: 'any' } } })).bad).toEqual([])
  const names = async (tcb: 'required' | 'any') =>
    (await judge({ question: { pins: { ...pins, tcb } } })).found?.details.filter(({ name }) =>
      name.startsWith('tcb-floor'),
    )
  expect([(await names('any'))?.length, (await names('required'))?.length]).toEqual([0, 5])
})
