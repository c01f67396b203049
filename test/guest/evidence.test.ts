import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { Check } from '@sinclair/typebox/value'
import { makeSandbox, type Sandbox } from '../../scripts/rigs/guest/root.ts'
import {
  bareReport,
  createTsmKernel,
  deviceMeasurement,
  deviceOperatorKey,
  type TsmSettings,
} from '../../scripts/rigs/guest/tsm-kernel.ts'
import { sampleDocument, sampleFields, sampleNetwork } from '../../scripts/rigs/instances/sample-claim.ts'
import type { PublicKeys } from '../../src/attest/receipt/public-keys.ts'
import { encodeReceipt } from '../../src/attest/receipt/receipt.ts'
import { makeReceiptKeys } from '../../src/attest/receipt/receipt-keys.ts'
import { decodeStatement, reportDataOf, statementContext } from '../../src/attest/receipt/statement.ts'
import { portableVerifiers, verifyHybrid } from '../../src/attest/receipt/verifiers.ts'
import { decodeReport } from '../../src/attest/report/report.ts'
import { fromBase64Url, toBase64Url } from '../../src/base/bytes.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { checkValue } from '../../src/contract/check.ts'
import type { TSchema } from '../../src/contract/type.ts'
import { AgentRequest, agentLineBytesMax } from '../../src/contract/vm/agent.ts'
import { GuestEvidence } from '../../src/contract/vm/agent-responses.ts'
import { orderedBytesMax } from '../../src/contract/vm/orders/secret.ts'
import type { ClaimRecord } from '../../src/guest/claim-record.ts'
import { createEvidence, type OrderedFields } from '../../src/guest/evidence.ts'
import { openConfigfs } from '../../src/guest/report/configfs.ts'
import { createReportDevice, type ReportDevice } from '../../src/guest/report/device.ts'
import { nativeKeys } from '../../src/linux/native-keys.ts'

const document = sampleDocument({
  organization: 'acme',
  name: 'abcd1234',
  hostname: 'abcd1234.acme.example.test',
  publicKey: 'ssh-ed25519 AAAA',
})
const claim: ClaimRecord = {
  claimId: 'claim-1',
  sha256: 'ab'.repeat(32),
  organization: 'acme',
  name: 'abcd1234',
  hostname: 'abcd1234.acme.example.test',
  sshHostKeyDigest: '11'.repeat(32),
  publicKeyDigest: '22'.repeat(32),
  document,
}
const simulated = { measurement: '5a'.repeat(48), operatorKey: '6b'.repeat(48) }
const nonceBytes = new Uint8Array(32).fill(7)
const nonce = toBase64Url(nonceBytes)
const nowMs = Date.UTC(2026, 10, 22)
const keys = makeReceiptKeys(systemRandom, nativeKeys)
let ordered: readonly string[] | null = null
let reach: Pick<OrderedFields, 'egressPolicy' | 'secrets' | 'published'> = {
  egressPolicy: null,
  secrets: null,
  published: null,
}

async function deviceOf(settings: TsmSettings): Promise<ReportDevice> {
  const found = await openConfigfs('/reports', createTsmKernel(settings))
  if (found === null) throw new Error('a provider was there')
  return createReportDevice('configfs-tsm', found.ask, { sleep: async () => {} })
}

function evidenceOf({ paths, owner }: Sandbox, device: ReportDevice | null) {
  return createEvidence({
    paths,
    owner,
    keys,
    device: Promise.resolve(device),
    imageName: 'instance',
    ordered: () => ({ loginKeys: ordered, ...reach }),
    nowMs: () => nowMs,
    tpm: async () => null,
  })
}

async function made(
  evidence: ReturnType<typeof evidenceOf>,
  request = { nonce, simulated: null as typeof simulated | null },
) {
  const answer = await evidence.make(request, claim)
  if (!answer.ok) throw new Error(answer.message)
  expect(Check(GuestEvidence, answer.evidence)).toBe(true)
  return answer.evidence
}

function problemOf(schema: TSchema, value: unknown): string | null {
  const read = checkValue(schema, value)
  return read.ok ? null : read.problem
}

function bytesOf(text: string | null | undefined): Uint8Array {
  return fromBase64Url(text ?? '') ?? new Uint8Array(0)
}

/** The receipt that a host makes of it. */
function receiptOf(evidence: GuestEvidence, changes: Partial<Parameters<typeof encodeReceipt>[0]> = {}) {
  const all = <Name extends string>(of: { [Key in Name]: string }) =>
    Object.fromEntries(Object.entries<string>(of).map(([name, text]) => [name, bytesOf(text)])) as {
      [Key in Name]: Uint8Array
    }
  const statement = bytesOf(evidence.statement)
  const report = evidence.report === null ? bareReport(reportDataOf(statement)) : bytesOf(evidence.report)
  const der = Uint8Array.of(0x30, 0)
  return encodeReceipt({
    platform: 'simulated',
    statement,
    keys: all(evidence.keys),
    signatures: all(evidence.signatures),
    evidence: { report, vek: der, chain: [der, der] },
    ...changes,
  })
}

describe('evidence', () => {
  // Goal: with a device, the statement holds the claim, the nonce and the device's facts about this VM, both halves of
  // the signature verify, and the report is over exactly this statement.
  test('of a device', async () => {
    await using sandbox = await makeSandbox()
    const own = evidenceOf(sandbox, await deviceOf({}))
    expect(await own.platform()).toBe('snp')
    const evidence = await made(own)
    const bytes = bytesOf(evidence.statement)
    expect(decodeStatement(bytes)).toMatchObject({
      kind: 'claim',
      scope: 'claim-only',
      nonce: nonceBytes,
      issuedAt: nowMs,
      image: { name: 'instance', measurement: deviceMeasurement },
      operatorKey: deviceOperatorKey,
      organization: 'acme',
      name: 'abcd1234',
      hostname: 'abcd1234.acme.example.test',
      sshHostKeyDigest: new Uint8Array(32).fill(0x11),
      publicKeyDigest: new Uint8Array(32).fill(0x22),
      ...sampleFields(document),
    })
    const publicKeys: PublicKeys = keys.publicKeys
    const signature = { ed25519: bytesOf(evidence.signatures.ed25519), mldsa65: bytesOf(evidence.signatures.mldsa65) }
    const options = { context: statementContext, verifiers: portableVerifiers }
    const checks = await verifyHybrid(publicKeys, bytes, signature, options)
    expect(checks.map(check => check.outcome)).toEqual(['pass', 'pass'])
    expect(decodeReport(bytesOf(evidence.report)).reportData).toEqual(reportDataOf(bytes))
  })

  // Goal: each statement has the keys of the moment.
  test('with the keys that orders have set', async () => {
    await using sandbox = await makeSandbox()
    const own = evidenceOf(sandbox, await deviceOf({}))
    const keysIn = async () => {
      const statement = decodeStatement(bytesOf((await made(own)).statement))
      return statement.kind === 'claim' ? statement.loginKeys : undefined
    }
    expect(await keysIn()).toBeNull()
    ordered = [`SHA256:${'a'.repeat(43)}`, `SHA256:${'b'.repeat(43)}`]
    expect(await keysIn()).toEqual(ordered)
    ordered = null
  })

  // Goal: whatever orders may set, the host accepts the evidence, and the receipt fits the channel: an instance whose
  // evidence were refused would take no further order.
  test('of the largest claim with the most that orders set', async () => {
    await using sandbox = await makeSandbox()
    const own = evidenceOf(sandbox, await deviceOf({}))
    const policyBytes = 20_480
    const secrets = Array.from({ length: 32 }, (_, at) => String(at).padStart(180, 's'))
    const left = orderedBytesMax - policyBytes - 33 * 3 - 32 * 180
    expect(left).toBeGreaterThan(0)
    // The longest text of `PublishedFacts`.
    const published = Array.from({ length: 4 }, () =>
      JSON.stringify({ keySha256: 'a'.repeat(64), name: 'n'.repeat(32), port: 65_535 }),
    )
    reach = { egressPolicy: 'p'.repeat(policyBytes), secrets: [...secrets.slice(1), 's'.repeat(180 + left)], published }
    ordered = Array.from({ length: 16 }, (_, at) => `SHA256:${String(at).padStart(43, 'k')}`)
    const text = 'x'.repeat(256)
    const inference = { ...document.claim.inference, baseUrl: 'u'.repeat(512), model: text }
    const largest: ClaimRecord = {
      ...claim,
      ...{ organization: text, name: text, hostname: text },
      document: {
        ...document,
        claim: { ...document.claim, inference },
        network: { ...sampleNetwork, resolvers: Array.from({ length: 3 }, (_, at) => String(at).repeat(39)) },
      },
    }
    try {
      const answer = await own.make({ nonce, simulated: null }, largest)
      if (!answer.ok) throw new Error(answer.message)
      const evidence = { ...answer.evidence, tpm: toBase64Url(new Uint8Array(16_384)) }
      expect(problemOf(GuestEvidence, evidence)).toBeNull()
      const response = { id: 'r1', ok: true, evidence }
      expect(JSON.stringify(response).length).toBeLessThan(agentLineBytesMax)
      const der = new Uint8Array(2_048)
      const report = bytesOf(evidence.report)
      const parts = { report, vek: der, chain: [der, der] as const, crl: der, tpm: bytesOf(evidence.tpm) }
      const receipt = JSON.stringify(receiptOf(evidence, { evidence: parts }))
      const request = { id: 'r1', op: 'receipt', receipt }
      expect(problemOf(AgentRequest, request)).toBeNull()
      expect(JSON.stringify(request).length).toBeLessThan(agentLineBytesMax)
    } finally {
      ordered = null
      reach = { egressPolicy: null, secrets: null, published: null }
    }
  })

  // Goal: without a device there is no report, and measurement and operator key are the simulated ones.
  test('without a device', async () => {
    await using sandbox = await makeSandbox()
    const own = evidenceOf(sandbox, null)
    expect(await own.platform()).toBe('none')
    const evidence = await made(own, { nonce, simulated })
    expect(evidence.report).toBeNull()
    expect(decodeStatement(bytesOf(evidence.statement))).toMatchObject({
      operatorKey: new Uint8Array(48).fill(0x6b),
      image: { name: 'instance', measurement: new Uint8Array(48).fill(0x5a) },
    })
  })

  // Goal: nothing is signed before the claim, for a nonce that is not exactly 32 bytes, or if simulation and hardware
  // mix.
  test('is refused', async () => {
    await using sandbox = await makeSandbox()
    const hardware = evidenceOf(sandbox, await deviceOf({}))
    const software = evidenceOf(sandbox, null)
    expect(await hardware.make({ nonce, simulated: null }, null)).toMatchObject({ ok: false, code: 'unclaimed' })
    expect(await software.make({ nonce, simulated }, null)).toMatchObject({ ok: false, code: 'unclaimed' })
    expect(await hardware.make({ nonce, simulated }, claim)).toMatchObject({ ok: false, code: 'bad_request' })
    expect(await software.make({ nonce, simulated: null }, claim)).toMatchObject({ ok: false, code: 'bad_request' })
    // 43 letters whose last one carries bits that no byte has.
    for (const odd of [`${'A'.repeat(42)}B`, 'A'.repeat(44), 'A'.repeat(42), '', '*'.repeat(43)]) {
      expect(await hardware.make({ nonce: odd, simulated: null }, claim)).toMatchObject({
        ok: false,
        message: 'evidence.nonce: not 32 bytes in canonical base64url',
      })
    }
  })

  // Goal: a report over other data, or of another VM than the first one named, is never handed out.
  test('distrusts the device', async () => {
    await using sandbox = await makeSandbox()
    const stale = await deviceOf({ reportOf: () => bareReport(new Uint8Array(64)) })
    expect(evidenceOf(sandbox, stale).make({ nonce, simulated: null }, claim)).rejects.toThrow(
      'a report over other data',
    )
    for (const [field, reason] of [
      ['measurement', 'another measurement'],
      ['idKeyDigest', 'another operator key'],
    ] as const) {
      const asked: Uint8Array[] = []
      const changing = await deviceOf({
        reportOf: inblob => bareReport(inblob, { [field]: new Uint8Array(48).fill(asked.push(inblob)) }),
      })
      expect(evidenceOf(sandbox, changing).make({ nonce, simulated: null }, claim)).rejects.toThrow(reason)
    }
  })
})

describe('the receipt', () => {
  // Goal: only that of the last evidence is kept, in one canonical form, readable by everyone in the guest.
  test('is kept', async () => {
    await using sandbox = await makeSandbox()
    const own = evidenceOf(sandbox, null)
    const receiptPath = sandbox.paths.receipt
    expect(own.keep('{}')).toMatchObject({ ok: false, code: 'unclaimed' })
    const first = await made(own, { nonce, simulated })
    expect(own.keep(JSON.stringify(receiptOf(first), null, 2))).toEqual({ ok: true })
    expect(fs.readFileSync(receiptPath, 'utf8')).toBe(JSON.stringify(receiptOf(first)))
    expect(fs.statSync(receiptPath).mode & 0o777).toBe(0o644)
    const second = await made(own, { nonce: toBase64Url(new Uint8Array(32).fill(8)), simulated })
    expect(own.keep(JSON.stringify(receiptOf(first)))).toMatchObject({
      ok: false,
      message: 'receipt: not of the last evidence',
    })
    expect(fs.readFileSync(receiptPath, 'utf8')).toBe(JSON.stringify(receiptOf(first)))
    expect(own.keep(JSON.stringify(receiptOf(second)))).toEqual({ ok: true })
    expect(fs.readFileSync(receiptPath, 'utf8')).toBe(JSON.stringify(receiptOf(second)))
  })

  // Goal: what is no receipt, or one with anything of another's in it, is refused and nothing is written.
  test('is refused', async () => {
    await using sandbox = await makeSandbox()
    const own = evidenceOf(sandbox, await deviceOf({}))
    const evidence = await made(own)
    const good = receiptOf(evidence)
    const flip = (text: string) => `${text.startsWith('A') ? 'B' : 'A'}${text.slice(1)}`
    const bad = [
      '',
      '{',
      'null',
      '[]'.repeat(10_000),
      JSON.stringify({ ...good, more: 1 }),
      JSON.stringify({ ...good, statement: flip(good.statement) }),
      JSON.stringify({ ...good, keys: { ...good.keys, x25519: flip(good.keys.x25519) } }),
      JSON.stringify({ ...good, signatures: { ...good.signatures, ed25519: flip(good.signatures.ed25519) } }),
      JSON.stringify({ ...good, evidence: { ...good.evidence, report: flip(good.evidence.report) } }),
      JSON.stringify(good).replace('"platform"', '"format":"strongroom/attest-pq/v1","platform"'),
    ]
    for (const text of bad) expect(own.keep(text)).toMatchObject({ ok: false, code: 'bad_request' })
    expect(fs.existsSync(sandbox.paths.receipt)).toBe(false)
    expect(own.keep(JSON.stringify(good))).toEqual({ ok: true })
  })
})
