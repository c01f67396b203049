// Judges a gateway's attestation: the five receipts, each and together, against what the relying party expects. No network, no files, no clock.
//
// Every receipt has some seventy checks. People get them in groups, one for each thing that the contract (4.2) wants checked; documents have all.

import { Value } from '@sinclair/typebox/value'
import type { TrustedRoot } from '../attest/amd/roots.ts'
import type { Policy } from '../attest/policy/policy.ts'
import { nativeVerifiers } from '../attest/receipt/hybrid-verify.ts'
import type { PublicKeys } from '../attest/receipt/public-keys.ts'
import { decodeReceipt } from '../attest/receipt/receipt.ts'
import type { StatementOf } from '../attest/receipt/statement.ts'
import { type ReceiptVerdict, verifyReceipt } from '../attest/receipt/verify.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../attest/verdict.ts'
import { equalConstantTime, fromBase64Url, toBase64Url, toHex } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'
import { AttestationResponse, type AttestedWorkload } from '../contract/attestation.ts'
import { admitWorkload } from '../inference/attestation/workloads.ts'
import type { ReadAllowlist } from './allowlist.ts'

/** Five receipts of at most 1 MiB would be 5; real ones have 20 KiB. */
export const attestationBytesMax = 2 * 1024 * 1024

export type AttestationQuestion = {
  readonly nonce: Uint8Array | 'any'
  readonly asOf: number
  readonly ageMsMax: number | 'any'
  readonly roots: readonly TrustedRoot[]
  readonly policy: Policy
  readonly requireCrl: boolean
  /** In the place of the one that a receipt brings. */
  readonly crl: Uint8Array | undefined
  readonly allowlist: ReadAllowlist | 'any'
  /** SHA-256 of the SPKI that the connection was made with. */
  readonly tlsSpkiDigest: Uint8Array | 'any'
}

export type AttestationVerdict = Verdict & {
  readonly simulated: boolean
  readonly receipts: readonly { readonly target: AttestedWorkload; readonly verdict: ReceiptVerdict<'workload'> }[]
  /** Of the gateway; worth something only in a good verdict. Null when they cannot be read. */
  readonly keys: PublicKeys | null
  readonly gateway: StatementOf<'workload'> | null
}

/** Never throws: what cannot be read is a failed check. */
export async function verifyAttestation(bytes: Uint8Array, question: AttestationQuestion): Promise<AttestationVerdict> {
  const read = readDocument(bytes)
  if (!read.ok) {
    const checks = [fail('attestation-format', read.reason)]
    return { ...verdict(checks), simulated: false, receipts: [], keys: null, gateway: null }
  }
  const { document } = read
  const nonce = fromBase64Url(document.nonce) ?? new Uint8Array(0)
  const receipts = await Promise.all(
    document.receipts.map(async ({ target, receipt }) => {
      const { crl } = question
      const { evidence } = receipt
      const given = crl === undefined ? receipt : { ...receipt, evidence: { ...evidence, crl: toBase64Url(crl) } }
      // The document's nonce is compared with the caller's below; here every receipt has to carry the document's.
      return { target, verdict: await verifyReceipt(given, questionOf(target, nonce, question)) }
    }),
  )
  const statements = receipts.map(one => one.verdict.statement)
  const gateway = statements[0] ?? null
  const checks = [
    pass('attestation-format', 'five receipts, in the order and under the names of the contract'),
    nonceCheck(nonce, question.nonce),
    togetherCheck(statements),
    tlsCheck(gateway, question.tlsSpkiDigest),
    ...receipts.flatMap(({ target, verdict: one }) => groupsOf(target, one, question.allowlist)),
  ]
  const simulated = receipts.some(one => one.verdict.simulated)
  // Groups leave nothing out, but a verdict must not hang on how they are told.
  const all = verdict(checks)
  const ok = all.ok && receipts.every(one => one.verdict.ok)
  return { ok, checks, simulated, receipts, keys: keysOf(document), gateway }
}

type Read =
  | { readonly ok: true; readonly document: AttestationResponse }
  | { readonly ok: false; readonly reason: string }

function readDocument(bytes: Uint8Array): Read {
  if (bytes.length > attestationBytesMax) return { ok: false, reason: `${bytes.length} bytes are too many` }
  try {
    const document = parseJson(bytes, { depthMax: 8 })
    if (Value.Check(AttestationResponse, document)) return { ok: true, document }
    const [first] = Value.Errors(AttestationResponse, document)
    return { ok: false, reason: `${first?.path ?? ''}: ${first?.message ?? 'not as the contract says'}` }
  } catch (error) {
    return { ok: false, reason: messageOf(error) }
  }
}

function questionOf(target: AttestedWorkload, nonce: Uint8Array, question: AttestationQuestion) {
  const { asOf, ageMsMax, roots, policy, requireCrl, allowlist } = question
  return {
    kind: 'workload' as const,
    ...{ nonce, asOf, ageMsMax, roots, policy, requireCrl },
    expected: {
      imageName: 'any' as const,
      operatorKey: 'any' as const,
      target: { equals: target },
      workload: { equals: target },
      // Judged below: an allowlist may admit several.
      imageDigest: 'any' as const,
      command: 'any' as const,
      allowlistDigest: allowlist === 'any' ? ('any' as const) : { equals: allowlist.digest },
      tlsSpkiDigest: target === 'gateway' ? ('any' as const) : { equals: null },
    },
    tpm: 'any' as const,
    verifiers: nativeVerifiers,
  }
}

function keysOf(document: AttestationResponse): PublicKeys | null {
  try {
    return decodeReceipt(document.receipts[0].receipt).keys
  } catch {
    return null
  }
}

function nonceCheck(found: Uint8Array, asked: Uint8Array | 'any'): Check {
  const name = 'attestation-nonce'
  if (asked === 'any') return notChecked(name, 'no nonce was asked for: this evidence may be an old one', false)
  return check(
    name,
    equalConstantTime(found, asked),
    `the nonce is ${toHex(found)}, not ${toHex(asked)}`,
    'the one sent',
  )
}

/** Five receipts of one gateway: one set of keys, one image, one operator, one allowlist. */
function togetherCheck(statements: readonly (StatementOf<'workload'> | null)[]): Check {
  const name = 'attestation-together'
  const kinds = statements.map(one => {
    if (one === null) return null
    const { keysDigest, image, operatorKey, allowlistDigest } = one
    return [keysDigest, image.measurement, operatorKey, allowlistDigest].map(toHex).join(' ')
  })
  if (kinds.includes(null)) return notChecked(name, 'a receipt cannot be read', true)
  const isOne = new Set(kinds).size === 1
  return check(name, isOne, 'the receipts differ in keys, image, operator or allowlist', 'one gateway made all five')
}

function tlsCheck(gateway: StatementOf<'workload'> | null, connection: Uint8Array | 'any'): Check {
  const name = 'tls-binding'
  if (connection === 'any') return notChecked(name, 'there is no connection to compare with', false)
  if (gateway === null) return notChecked(name, "the gateway's receipt cannot be read", true)
  const attested = gateway.tlsSpkiDigest
  const holds = attested !== null && equalConstantTime(attested, connection)
  const found = attested === null ? 'no TLS key' : toHex(attested)
  return check(
    name,
    holds,
    `the connection's key is ${toHex(connection)}, the receipt names ${found}`,
    toHex(connection),
  )
}

type Group = {
  readonly name: string
  readonly members: readonly string[]
  /** Skipped by choice, the group says nothing about trust, whatever else of it passed. */
  readonly decides?: { readonly check: string; readonly otherwise: string }
}

const GROUPS: readonly Group[] = [
  { name: 'nonce', members: ['statement-nonce', 'statement-age'] },
  {
    name: 'measurement',
    members: ['statement-measurement', 'measurement', 'expected-image-name'],
    decides: { check: 'measurement', otherwise: 'no measurement is expected; name yours in a --policy' },
  },
  {
    name: 'operator-key',
    members: ['statement-operator-key', 'id-key-digest', 'expected-operator-key'],
    decides: { check: 'id-key-digest', otherwise: 'no operator key is expected; name yours in a --policy' },
  },
  { name: 'identity', members: ['statement-kind', 'expected-target', 'expected-workload', 'expected-tls-spki-digest'] },
  {
    name: 'allowlist',
    members: ['expected-allowlist-digest', 'host-data-allowlist', 'host-data'],
    decides: { check: 'expected-allowlist-digest', otherwise: 'no allowlist is expected; name yours by --allowlist' },
  },
]
/** Shown by `admission`, which knows what the allowlist admits. */
const admissionMembers = ['expected-image-digest', 'expected-command']

function groupsOf(
  target: AttestedWorkload,
  found: ReceiptVerdict<'workload'>,
  allowlist: ReadAllowlist | 'any',
): Check[] {
  const named = [...GROUPS.flatMap(group => group.members), ...admissionMembers]
  const rest = found.checks.filter(one => !named.includes(one.name))
  const groups = GROUPS.map(group =>
    grouped(
      `${target}/${group.name}`,
      found.checks.filter(one => group.members.includes(one.name)),
      group.decides,
    ),
  )
  return [grouped(`${target}/evidence`, rest), ...groups, admissionCheck(target, found, allowlist)]
}

function grouped(name: string, members: readonly Check[], decides?: Group['decides']): Check {
  const reasons = (checks: readonly Check[]) => checks.map(one => `${one.name}: ${one.reason}`).join('; ')
  const failed = members.filter(one => one.outcome === 'fail')
  if (failed.length > 0) return fail(name, reasons(failed))
  const missing = members.filter(one => one.outcome === 'not-checked' && one.required)
  if (missing.length > 0 || members.length === 0)
    return notChecked(name, reasons(missing) || 'nothing was checked', true)
  const deciding = members.find(one => one.name === decides?.check)
  if (decides !== undefined && deciding?.outcome !== 'pass') return notChecked(name, decides.otherwise, false)
  const passed = members.filter(one => one.outcome === 'pass')
  return pass(name, passed.length === 1 ? (passed[0]?.reason ?? '') : `${passed.length} checks`)
}

/** Image digest and command by the same rule by which the gateway itself admits. */
function admissionCheck(
  target: AttestedWorkload,
  { statement }: ReceiptVerdict<'workload'>,
  expected: ReadAllowlist | 'any',
): Check {
  const name = `${target}/admission`
  if (statement === null) return notChecked(name, 'the receipt cannot be read', true)
  const { imageDigest, command } = statement
  const shown = `image ${toHex(imageDigest)}, command ${JSON.stringify(command)}`
  if (expected === 'any') return notChecked(name, `${shown}: no allowlist is expected`, false)
  const admission = admitWorkload(expected.allowlist, { workload: target, imageDigest, command })
  return admission.ok ? pass(name, shown) : fail(name, admission.fault.message)
}
