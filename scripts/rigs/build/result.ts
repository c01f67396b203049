// The result of a build as a build VM writes it, over simulated evidence; a test may change each part before it is
// signed.

import { sha256 } from '../../../src/attest/hash.ts'
import { policyWithFloors } from '../../../src/attest/policy/floor-policy.ts'
import { evidenceBytes, familyReportData } from '../../../src/attest/provenance/evidence.ts'
import { artifactPath, RESULT_PATHS } from '../../../src/attest/provenance/paths.ts'
import type { BuildRecord } from '../../../src/attest/provenance/record.ts'
import { writeDocuments } from '../../../src/attest/provenance/write.ts'
import { type HybridKeys, portableSigner, signHybrid } from '../../../src/attest/receipt/hybrid-keys.ts'
import { issueReceipt } from '../../../src/attest/receipt/issue.ts'
import type { StatementFields } from '../../../src/attest/receipt/new-statement.ts'
import { decodeReceipt, type Receipt } from '../../../src/attest/receipt/receipt.ts'
import type { SimulatedReport } from '../../../src/attest/simulator/report.ts'
import { present } from '../../../src/base/assert.ts'
import { fromHex, toHex } from '../../../src/base/bytes.ts'
import { orderWords } from '../../../src/builder/order.plan.ts'
import type { BuildOrder } from '../../../src/contract/vm/build-order.ts'
import type { BuildQuestion, ResultFiles } from '../../../src/verifier/build/question.ts'
import { countingRandom, measurement, operatorKey, sampleKeys, simulatedSource } from '../gateway/receipt-samples.ts'
import { simulatedAsOf, simulatedPlatform } from '../launch/simulated-platform.ts'
import { ARTIFACTS, cargoRecord, orderOf, requestOf } from './record.ts'

export type ResultChanges = {
  readonly record?: Partial<BuildRecord>
  readonly measurement?: Uint8Array
  readonly keys?: HybridKeys
  /** Order of the host; the record's by default. */
  readonly order?: Partial<BuildOrder>
  /** Fields of the statements, before they are signed. */
  readonly dispatch?: Readonly<Record<string, unknown>>
  readonly completion?: Readonly<Record<string, unknown>>
  /** Simulated reports of both receipts, and of evidence.json alone. */
  readonly report?: Partial<SimulatedReport>
  readonly familyReport?: Partial<SimulatedReport>
}

export type SampleResult = {
  /** By path below the top-level directory. */
  readonly files: Map<string, Uint8Array>
  readonly dispatch: Receipt
  readonly completion: Receipt
  readonly nonce: Uint8Array
}

export async function sampleResult(changes: ResultChanges = {}): Promise<SampleResult> {
  const { publicKeys, secretKeys } = changes.keys ?? sampleKeys()
  const vm = changes.measurement ?? measurement
  const base = { ...cargoRecord, ...changes.record }
  const order = { ...orderOf(base), ...changes.order }
  const record: BuildRecord = { ...base, order, image: { ...base.image, measurement: toHex(vm) } }
  const nonce = present(fromHex(record.request.nonce), 'a nonce')
  const issue = async (fields: StatementFields, nowMs: number): Promise<Receipt> =>
    await issueReceipt({
      fields,
      publicKeys,
      platform: 'simulated',
      nowMs,
      sign: portableSigner(secretKeys, countingRandom(3)),
      evidenceSource: simulatedSource(reportOf(vm, changes.report)),
    })
  const common = {
    nonce,
    operatorKey,
    image: { name: 'builder', measurement: vm },
    sourceDigest: present(fromHex(record.source.treeSha256), 'a tree'),
    networkPolicy: record.networkPolicy,
  }
  const words = { ...orderWords(order), kind: 'build-dispatch', jobId: record.jobId } as const
  const dispatched = { ...common, ...words, ...changes.dispatch }
  const dispatch = await issue(dispatched as StatementFields, record.startedAtMs)
  const documents = await writeDocuments(record, {
    publicKeys,
    sign: message => signHybrid(secretKeys, message, { context: new Uint8Array(0), random: countingRandom(9) }),
  })
  const completed = {
    ...common,
    kind: 'build',
    provenanceDigest: documents.provenanceDigest,
    dispatchDigest: sha256(decodeReceipt(dispatch).statement),
    ...changes.completion,
  } as const
  const completion = await issue(completed as StatementFields, record.finishedAtMs)
  const reportData = familyReportData(documents.provenanceDigest, nonce)
  const source = simulatedSource(reportOf(vm, { ...changes.report, ...changes.familyReport }))
  const family = reportData === null ? null : await source(reportData)
  const evidence = evidenceBytes({
    platform: 'simulated',
    evidence:
      family === null ? null : { report: family.report, vek: family.vek, ask: family.chain[0], ark: family.chain[1] },
    dispatch,
    completion,
  })
  const files = new Map(documents.files.map(({ path, bytes }) => [path, bytes]))
  files.set(RESULT_PATHS.evidence, evidence)
  for (const [name, bytes] of Object.entries(ARTIFACTS)) files.set(artifactPath(name), bytes)
  return { files, dispatch, completion, nonce }
}

/** Firmware that is up to date: SMT, and ALIAS_CHECK_COMPLETE. */
function reportOf(vm: Uint8Array, { report, ...changes }: Partial<SimulatedReport> = {}): Partial<SimulatedReport> {
  return { measurement: vm, ...changes, report: { idKeyDigest: operatorKey, platformInfo: 0x21n, ...report } }
}

export function resultFiles(files: ReadonlyMap<string, Uint8Array>): ResultFiles {
  const documents = [...files].filter(([path]) => !path.startsWith('artifacts/') && path !== RESULT_PATHS.log)
  return {
    documents: new Map(documents),
    digests: new Map([...files].map(([path, bytes]) => [path, toHex(sha256(bytes))])),
  }
}

/** Question of a client that trusts the simulation, wants this measurement, and has no image to compare. */
export async function buildQuestion(nonce: Uint8Array, changes: Partial<BuildQuestion> = {}): Promise<BuildQuestion> {
  const { authority } = await simulatedPlatform('genoa')
  return {
    nonce,
    asOf: simulatedAsOf.getTime(),
    roots: [authority.root],
    policy: { ...policyWithFloors(), measurements: [measurement] },
    pins: { measurement: 'required', vmpl: 'required', crl: 'required', tcb: 'required' },
    request: requestOf(cargoRecord),
    crl: undefined,
    ownImage: false,
    igvm: 'any',
    image: 'any',
    ...changes,
  }
}
