// Receipts of every kind over simulated evidence. Deterministic but for the salts of the simulator's signatures.

import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import type { HybridKeys } from '../../../src/attest/receipt/hybrid-keys.ts'
import { makeHybridKeys, portableSigner } from '../../../src/attest/receipt/hybrid-keys.ts'
import type { EvidenceSource } from '../../../src/attest/receipt/issue.ts'
import { issueReceipt } from '../../../src/attest/receipt/issue.ts'
import type { StatementFields } from '../../../src/attest/receipt/new-statement.ts'
import type { Receipt } from '../../../src/attest/receipt/receipt.ts'
import {
  STATEMENT_FIELDS,
  type Statement,
  type StatementKind,
  statementFormat,
} from '../../../src/attest/receipt/statement.ts'
import type { Expected, ReceiptQuestion } from '../../../src/attest/receipt/verify.ts'
import { issueSimulatedCrl } from '../../../src/attest/simulator/certificates.ts'
import type { SimulatedReport } from '../../../src/attest/simulator/report.ts'
import { simulatedAsOf, simulatedPlatform } from '../launch/simulated-platform.ts'

export const kinds = ['workload', 'claim', 'build-dispatch', 'build'] as const satisfies StatementKind[]

export const measurement = new Uint8Array(48).fill(9)
export const operatorKey = new Uint8Array(48).fill(4)
export const allowlistDigest = new Uint8Array(32).fill(6)
export const nonce = Uint8Array.from({ length: 32 }, (_, at) => at)

const common = { nonce, operatorKey, image: { name: 'inference', measurement } }

export const fieldsOf = {
  workload: {
    ...common,
    kind: 'workload',
    target: 'gateway',
    workload: 'llama',
    imageDigest: new Uint8Array(32).fill(1),
    command: ['serve', '--port', '8080', ''],
    allowlistDigest,
    tlsSpkiDigest: new Uint8Array(32).fill(2),
    configurationDigest: new Uint8Array(32).fill(5),
    gpuEvidenceDigest: null,
  },
  claim: {
    ...common,
    kind: 'claim',
    organization: 'acme',
    name: 'box-1',
    hostname: 'box-1.acme.example',
    sshHostKeyDigest: new Uint8Array(32).fill(7),
    publicKeyDigest: new Uint8Array(32).fill(8),
    claimDigest: new Uint8Array(32).fill(13),
    inferenceUrl: 'https://inference.strongroom.internal:8442/v1',
    inferenceModel: 'tiny',
    gateway: 'attested',
    gatewayDigest: new Uint8Array(32).fill(14),
    resolvers: ['192.0.2.53', '2001:db8::53'],
    egressLimitBytes: 5_368_709_120,
    egressNames: 'any',
    gatewayKeyDigest: new Uint8Array(32).fill(15),
    loginKeys: [`SHA256:${'A'.repeat(43)}`],
    egressPolicy: '{"allow":[{"host":"github.com","port":443}],"default":"refuse"}',
    secrets: ['{"header":"Authorization","host":"api.example.com","name":"TOKEN","port":443}'],
    published: [`{"keySha256":"${'ab'.repeat(32)}","name":"web","port":3000}`],
  },
  'build-dispatch': {
    ...common,
    kind: 'build-dispatch',
    nonce: Uint8Array.of(1, 2, 3),
    jobId: '4f9d2c1e-0000-4000-8000-000000000001',
    sourceDigest: new Uint8Array(32).fill(11),
    networkPolicy: 'none',
    orderDigest: new Uint8Array(32).fill(13),
    fetchProxy: 'http://10.0.0.1:8444',
    fetchMirror: 'sparse+https://crates.example/',
    fetchAuthoritiesDigest: new Uint8Array(32).fill(14),
  },
  build: {
    ...common,
    kind: 'build',
    nonce: Uint8Array.of(1, 2, 3),
    dispatchDigest: new Uint8Array(32).fill(12),
    provenanceDigest: new Uint8Array(32).fill(10),
    sourceDigest: new Uint8Array(32).fill(11),
    networkPolicy: 'none',
  },
} as const satisfies { [Kind in StatementKind]: Extract<StatementFields, { kind: Kind }> }

/** A whole statement of the kind, as issuing makes it. */
export function statementOf(kind: StatementKind, changes: Readonly<Record<string, unknown>> = {}): Statement {
  return {
    ...fieldsOf[kind],
    format: statementFormat,
    scope: STATEMENT_FIELDS[kind].scope.text,
    issuedAt: simulatedAsOf.getTime(),
    keysDigest: new Uint8Array(32).fill(3),
    ...changes,
  } as Statement
}

/** Repeatable bytes, different for each call. */
export function countingRandom(seed: number): (length: number) => Uint8Array {
  let call = seed
  return length => {
    call += 1
    return Uint8Array.from({ length }, (_, at) => (at * 31 + call * 17) & 0xff)
  }
}

let keys: HybridKeys | null = null

export function sampleKeys(): HybridKeys {
  keys ??= makeHybridKeys(countingRandom(1))
  return keys
}

export function simulatedSource(wanted: Partial<SimulatedReport> = {}): EvidenceSource {
  return async reportData => {
    const platform = await simulatedPlatform('genoa')
    const { root } = platform.authority
    const crl = await issueSimulatedCrl(platform.authority, {
      thisUpdate: new Date('2026-11-01T00:00:00Z'),
      nextUpdate: new Date('2036-12-01T00:00:00Z'),
      revoked: [],
    })
    const report = await platform.report({
      reportData,
      measurement,
      hostData: allowlistDigest,
      report: { idKeyDigest: operatorKey },
      ...wanted,
    })
    return { report, vek: platform.vcek, chain: [root.ask, root.ark], crl }
  }
}

export async function sampleReceipt(
  kind: StatementKind,
  changes: Partial<Parameters<typeof issueReceipt>[0]> = {},
): Promise<Receipt> {
  return await issueReceipt({
    fields: fieldsOf[kind],
    publicKeys: sampleKeys().publicKeys,
    sign: portableSigner(sampleKeys().secretKeys, countingRandom(50)),
    evidenceSource: simulatedSource(),
    platform: 'simulated',
    nowMs: simulatedAsOf.getTime(),
    ...changes,
  })
}

/** Expects every field to be the sample's. */
export function expectedOf<Kind extends StatementKind>(kind: Kind): Expected<Kind> {
  const skipped: readonly string[] = ['kind', 'nonce', 'image']
  const own = Object.entries(fieldsOf[kind]).filter(([name]) => !skipped.includes(name))
  const expected = own.map(([name, value]) => [name, { equals: value }])
  return { imageName: { equals: common.image.name }, ...Object.fromEntries(expected) } as Expected<Kind>
}

/** The question of a relying party that trusts the simulation. */
export async function questionOf<Kind extends StatementKind>(kind: Kind): Promise<ReceiptQuestion<Kind>> {
  const { authority } = await simulatedPlatform('genoa')
  return {
    kind,
    nonce: fieldsOf[kind].nonce,
    asOf: simulatedAsOf,
    ageMsMax: 60_000,
    roots: [authority.root],
    requireCrl: true,
    policy: { ...strictPolicy(), measurements: [measurement] },
    expected: expectedOf(kind),
    tpm: 'any',
  }
}
