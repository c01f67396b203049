// Goal: each thing that a build VM's receipt has to prove is compared at each stage, and the check that failed is
// named. Receipts of the simulated platform.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import {
  countingRandom,
  fieldsOf,
  measurement,
  operatorKey,
  sampleKeys,
  simulatedSource,
} from '../../scripts/rigs/gateway/receipt-samples.ts'
import { launchDocument, simulatedTrust } from '../../scripts/rigs/guest/attested-guest.ts'
import { simulatedAsOf } from '../../scripts/rigs/launch/simulated-platform.ts'
import { makeHybridKeys, portableSigner } from '../../src/attest/receipt/hybrid-keys.ts'
import { issueReceipt } from '../../src/attest/receipt/issue.ts'
import { keysDigest } from '../../src/attest/receipt/public-keys.ts'
import { decodeReceipt, type Receipt } from '../../src/attest/receipt/receipt.ts'
import { type BuildProof, type BuildQuestion, judgeBuild } from '../../src/builds/evidence.verify.ts'
import { launchText } from '../../src/contract/vm/launch.ts'

const launch = launchText(launchDocument)
const sha256 = (bytes: Uint8Array | string) => new Uint8Array(createHash('sha256').update(bytes).digest())
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
const other = (size: number) => new Uint8Array(size).fill(0xee)
const keys = sampleKeys()
const strangeKeys = makeHybridKeys(countingRandom(7))
const trust = await simulatedTrust()

type Fields = Record<string, unknown>
type Made = { fields?: Fields; keys?: typeof keys; hostData?: Uint8Array }

function receiptOf(
  kind: 'build-dispatch' | 'build',
  { fields = {}, keys: by = keys, hostData }: Made,
): Promise<Receipt> {
  const image = { name: launchDocument.image.name, measurement }
  return issueReceipt({
    fields: { ...fieldsOf[kind], image, ...fields } as never,
    publicKeys: by.publicKeys,
    sign: portableSigner(by.secretKeys, countingRandom(50)),
    evidenceSource: simulatedSource({ hostData: hostData ?? sha256(launch) }),
    platform: 'simulated',
    nowMs: simulatedAsOf.getTime(),
  })
}

const dispatchReceipt = await receiptOf('build-dispatch', {})
const statement = hex(sha256(decodeReceipt(dispatchReceipt).statement))
const dispatchProof: BuildProof = {
  dispatch: { statement, keys: hex(keysDigest(keys.publicKeys)), source: '0b'.repeat(32) },
  measurement: hex(measurement),
  simulated: true,
  provenance: null,
}

const dispatchQuestion: BuildQuestion = {
  stage: 'dispatch',
  jobId: '4f9d2c1e-0000-4000-8000-000000000001',
  nonce: '010203',
  mayFetch: false,
  asOf: simulatedAsOf.getTime(),
  trust,
  earlier: null,
}
const completionQuestion: BuildQuestion = { ...dispatchQuestion, stage: 'completion', earlier: dispatchProof }

type Change = Made & { question?: Partial<BuildQuestion>; evidence?: object }
const completionFields = (fields: Fields = {}) => ({
  dispatchDigest: sha256(decodeReceipt(dispatchReceipt).statement),
  ...fields,
})

async function judge(stage: 'dispatch' | 'completion', { question, evidence, ...made }: Change) {
  const receipt =
    stage === 'dispatch'
      ? await receiptOf('build-dispatch', made)
      : await receiptOf('build', { ...made, fields: completionFields(made.fields) })
  const asked = { ...(stage === 'dispatch' ? dispatchQuestion : completionQuestion), ...question }
  return judgeBuild({ receipt, launch, operatorKey, ...evidence } as never, asked)
}

/** Names of the checks that failed, or how it begins. */
async function failedOf(stage: 'dispatch' | 'completion', change: Change): Promise<string[]> {
  const judgement = await judge(stage, change)
  return judgement.ok ? [] : judgement.failed.map(line => line.split(':')[0] ?? '')
}

test('goal: the right receipts are good, and their proof is what they state', async () => {
  expect(await judge('dispatch', {})).toEqual({ ok: true, proof: dispatchProof })
  expect(await judge('completion', {})).toEqual({
    ok: true,
    proof: { ...dispatchProof, provenance: '0a'.repeat(32) },
  })
})

test('goal: completion follows dispatch, once', async () => {
  const refused = { ok: false, failed: ['stage: completion follows dispatch, once'] } as const
  expect(await judge('dispatch', { question: { earlier: dispatchProof } })).toEqual(refused)
  expect(await judge('completion', { question: { earlier: null } })).toEqual(refused)
  // A receipt of the other stage is none of this one.
  expect(await judgeBuild({ receipt: dispatchReceipt, launch, operatorKey }, completionQuestion)).toMatchObject({
    ok: false,
  })
})

test('goal: what a client checks against its own request does not matter to the host', async () => {
  const words = {
    orderDigest: other(32),
    fetchProxy: 'http://198.51.100.1:8444',
    fetchMirror: null,
    fetchAuthoritiesDigest: null,
    sourceDigest: other(32),
  }
  const judgement = await judge('dispatch', { fields: words })
  expect(judgement).toMatchObject({ ok: true, proof: { dispatch: { source: 'ee'.repeat(32) } } })
})

test('goal: the network that the build had is the one that its order allows', async () => {
  const fetching = { networkPolicy: 'fetch-phase-allow-list-then-none' }
  for (const stage of ['dispatch', 'completion'] as const) {
    expect(await failedOf(stage, { fields: fetching, question: { mayFetch: true } })).toEqual([])
    expect(await failedOf(stage, { fields: fetching })).toEqual(['expected-network-policy'])
    expect(await failedOf(stage, { question: { mayFetch: true } })).toEqual(['expected-network-policy'])
  }
})

const BOTH: [string, Change, string][] = [
  ['another nonce', { fields: { nonce: Uint8Array.of(1, 2) } }, 'statement-nonce'],
  ['a question with another nonce', { question: { nonce: '010204' } }, 'statement-nonce'],
  ['another image', { fields: { image: { name: 'builder', measurement } } }, 'expected-image-name'],
  ['another launch', { hostData: other(32) }, 'host-data'],
  ['a launch with a workload', { hostData: sha256('{}') }, 'host-data'],
  ['a host that trusts no simulation', { question: { trust: { ...trust, simulated: false } } }, 'simulated'],
  ['a nonce that is no text of bytes', { question: { nonce: 'x' } }, 'not hexadecimal'],
  ['a key that the operator has never had', { evidence: { operatorKey: other(48) } }, 'operator-key'],
  ['no receipt', { evidence: { receipt: null } }, ''],
  ['a launch that is not canonical', { evidence: { launch: ` ${launch}` } }, 'launch document'],
]
for (const stage of ['dispatch', 'completion'] as const)
  for (const [what, change, check] of BOTH) {
    test(`goal: ${stage}: ${what}: ${check}`, async () => {
      const failed = await failedOf(stage, change)
      expect(failed.length).toBeGreaterThan(0)
      if (check !== '') expect(failed).toContain(check)
    })
  }

test('goal: a key of the operator’s that did not sign this launch is found in the report', async () => {
  const question = { trust: { ...trust, operatorKeys: [...trust.operatorKeys, other(48)] } }
  for (const stage of ['dispatch', 'completion'] as const)
    expect(await failedOf(stage, { question, evidence: { operatorKey: other(48) } })).toEqual([
      'evidence',
      'id-key-digest',
      'expected-operator-key',
    ])
})

test('goal: another job is found at dispatch; another source, dispatch or VM at completion', async () => {
  expect(await failedOf('dispatch', { question: { jobId: 'another' } })).toEqual(['expected-job-id'])
  expect(await failedOf('completion', { fields: { sourceDigest: other(32) } })).toEqual(['expected-source-digest'])
  expect(await failedOf('completion', { fields: { dispatchDigest: other(32) } })).toEqual(['expected-dispatch-digest'])
  expect(await judge('completion', { keys: strangeKeys })).toEqual({
    ok: false,
    failed: ['keys-digest: not the keys of the dispatch'],
  })
})

test('goal: signatures and evidence that were changed are not good, whatever the statement says', async () => {
  const swap = (text: string) => `${text[0] === 'A' ? 'B' : 'A'}${text.slice(1)}`
  const { signatures, evidence } = dispatchReceipt
  const changed: Partial<Receipt>[] = [
    { signatures: { ...signatures, ed25519: swap(signatures.ed25519) } },
    { signatures: { ...signatures, mldsa65: swap(signatures.mldsa65) } },
    { evidence: { ...evidence, report: swap(evidence.report) } },
  ]
  for (const change of changed) {
    const judged = judgeBuild({ receipt: { ...dispatchReceipt, ...change }, launch, operatorKey }, dispatchQuestion)
    expect((await judged).ok).toBe(false)
  }
  const { crl: _, ...withoutCrl } = evidence
  const judged = await judgeBuild(
    { receipt: { ...dispatchReceipt, evidence: withoutCrl }, launch, operatorKey },
    dispatchQuestion,
  )
  expect(judged.ok).toBe(false)
})
