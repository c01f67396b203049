// Evidence of a claimed guest: its statement of kind `claim` over the host's nonce, signed, and a report over that. Effects: the report device,
// and the receipt's file.
//
// These keys sign here and nowhere else, and what they sign is always a claim statement of this guest's own facts: its launch, its keys, and the
// claim and the network that it was given and that are in force. The host adds the nonce now, and, where there is no report device, the
// measurement and the operator key that no hardware vouches for.

import { sha256 } from '../attest/hash.ts'
import { checkReport, newStatement, type StatementFields } from '../attest/receipt/issue.ts'
import { decodeReceipt, encodeReceipt } from '../attest/receipt/receipt.ts'
import type { ReceiptKeys } from '../attest/receipt/receipt-keys.ts'
import { reportDataOf } from '../attest/receipt/statement.ts'
import { decodeReport } from '../attest/report/report.ts'
import { fromBase64Url, fromHex, toBase64Url, utf8 } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import type { GuestEvidence, SimulatedLaunch } from '../contract/vm/agent.ts'
import { claimFieldsOf, claimFormat } from '../contract/vm/claim-document.ts'
import { type Owner, writeFileAtomic } from '../linux/files.ts'
import type { ClaimRecord } from './claim-record.ts'
import type { GuestPaths } from './paths.ts'
import type { ReportDevice } from './report/device.ts'
import { ok, type Refusal, refuse } from './wire.codec.ts'

export type Evidence = {
  /** Where this guest's reports come from. */
  readonly platform: () => Promise<'snp' | 'none'>
  /** Fault internal when the device fails. Do not call it while a call is under way. */
  readonly make: (
    request: { readonly nonce: string; readonly simulated: SimulatedLaunch | null },
    claim: ClaimRecord | null,
  ) => Promise<{ ok: true; evidence: GuestEvidence } | Refusal>
  /** Does once, with nothing of a claim, what the first evidence will need. What it signs is dropped here. */
  readonly warmUp: () => Promise<void>
  /** Keeps the receipt that the host made of the last evidence, for the verifier inside the guest. */
  readonly keep: (receipt: string) => { ok: true } | Refusal
}

export type EvidenceDeps = {
  readonly paths: Pick<GuestPaths, 'receipt'>
  readonly owner: Owner
  readonly keys: ReceiptKeys
  /** May not be found yet. */
  readonly device: Promise<ReportDevice | null>
  readonly imageName: string
  readonly nowMs: () => number
  /** Bytes of TPM evidence over a nonce; null where there is none to be had. Never rejects. */
  readonly tpm: (nonce: Uint8Array) => Promise<Uint8Array | null>
}

/** What the platform says of this VM's launch; it does not change while the VM lives. */
type Launch = { readonly measurement: Uint8Array; readonly operatorKey: Uint8Array }

export function createEvidence({ paths, owner, keys, device, imageName, nowMs, tpm }: EvidenceDeps): Evidence {
  let launch: Launch | null = null
  let last: GuestEvidence | null = null

  /** A statement names measurement and operator key before there is a report over it, so they are read from another one. */
  const launchOf = async (from: ReportDevice): Promise<Launch> => {
    const report = decodeReport(await from.report(new Uint8Array(64)))
    return { measurement: report.measurement, operatorKey: report.idKeyDigest }
  }

  return {
    platform: async () => ((await device) === null ? 'none' : 'snp'),
    make: async (request, claim) => {
      if (claim === null) return refuse('unclaimed', 'evidence: there is no claim yet')
      const nonce = fromBase64Url(request.nonce)
      if (nonce?.length !== 32) return refuse('bad_request', 'evidence.nonce: not 32 bytes in canonical base64url')
      const from = await device
      if (from !== null) {
        if (request.simulated !== null)
          return refuse('bad_request', 'evidence.simulated: this guest has a report device')
        launch ??= await launchOf(from)
      } else {
        if (request.simulated === null)
          return refuse('bad_request', 'evidence.simulated: this guest has no report device')
        launch = launchIn(request.simulated)
      }
      const fields = fieldsOf({ claim, launch, nonce, imageName })
      const statement = newStatement(fields, { ...keys, nowMs: nowMs() })
      const signatures = await keys.signStatement(statement)
      const quoted = await tpm(reportDataOf(statement))
      const report = from === null ? null : await from.report(reportDataOf(statement))
      if (report !== null) checkReport(report, reportDataOf(statement), fields)
      const evidence: GuestEvidence = {
        statement: toBase64Url(statement),
        keys: textsOf(keys.publicKeys),
        signatures: textsOf(signatures),
        report: report === null ? null : toBase64Url(report),
        ...(quoted === null ? {} : { tpm: toBase64Url(quoted) }),
      }
      last = evidence
      return { ok: true, evidence }
    },
    warmUp: async () => {
      const zeros = new Uint8Array(48)
      const nowhere = {
        claim: noClaim,
        launch: { measurement: zeros, operatorKey: zeros },
        nonce: zeros.subarray(16),
        imageName,
      }
      textsOf(await keys.signStatement(newStatement(fieldsOf(nowhere), { ...keys, nowMs: 0 })))
    },
    keep: text => {
      if (last === null) return refuse('unclaimed', 'receipt: there is no evidence yet')
      const read = readReceipt(text)
      if (!read.ok) return refuse('bad_request', read.reason)
      const { receipt } = read
      const { statement, keys: own, signatures, report, tpm: quoted } = last
      const isLast =
        receipt.statement === statement && isSame(receipt.keys, own) && isSame(receipt.signatures, signatures)
      if (!isLast) return refuse('bad_request', 'receipt: not of the last evidence')
      if (report !== null && receipt.evidence.report !== report)
        return refuse('bad_request', 'receipt: another report than that of the last evidence')
      if (receipt.evidence.tpm !== quoted)
        return refuse('bad_request', 'receipt: another TPM evidence than that of the last evidence')
      writeFileAtomic(paths.receipt, JSON.stringify(receipt), { mode: 0o644, owner })
      return ok
    },
  }
}

const noClaim: ClaimRecord = {
  claimId: 'none',
  sha256: '00'.repeat(32),
  organization: 'none',
  name: '00000000',
  hostname: 'none',
  sshHostKeyDigest: '00'.repeat(32),
  publicKeyDigest: '00'.repeat(32),
  document: {
    format: claimFormat,
    claim: {
      claimId: 'none',
      organization: 'none',
      name: '00000000',
      hostname: 'none',
      publicKey: '',
      inference: { baseUrl: '', address: null, model: '', gateway: { kind: 'none' }, keySha256: null },
      egress: { limitBytes: 0, names: 'any' },
    },
    network: null,
  },
}

type Facts = {
  readonly claim: ClaimRecord
  readonly launch: Launch
  readonly nonce: Uint8Array
  readonly imageName: string
}

function fieldsOf({ claim, launch, nonce, imageName }: Facts): StatementFields {
  return {
    kind: 'claim',
    nonce,
    operatorKey: launch.operatorKey,
    image: { name: imageName, measurement: launch.measurement },
    organization: claim.organization,
    name: claim.name,
    hostname: claim.hostname,
    sshHostKeyDigest: bytesOf(claim.sshHostKeyDigest),
    publicKeyDigest: bytesOf(claim.publicKeyDigest),
    ...claimFieldsOf(claim.document, text => sha256(utf8(text))),
  }
}

function launchIn({ measurement, operatorKey }: SimulatedLaunch): Launch {
  return { measurement: bytesOf(measurement), operatorKey: bytesOf(operatorKey) }
}

type ReadReceipt =
  | { readonly ok: true; readonly receipt: ReturnType<typeof encodeReceipt> }
  | { readonly ok: false; readonly reason: string }

/** In its one canonical form, whatever white space and order it came in. */
function readReceipt(text: string): ReadReceipt {
  try {
    return { ok: true, receipt: encodeReceipt(decodeReceipt(text)) }
  } catch (error) {
    return { ok: false, reason: messageOf(error) }
  }
}

function textsOf<Name extends string>(of: { readonly [Key in Name]: Uint8Array }): { [Key in Name]: string } {
  const entries = Object.entries<Uint8Array>(of).map(([name, bytes]) => [name, toBase64Url(bytes)])
  return Object.fromEntries(entries) as { [Key in Name]: string }
}

function isSame<Name extends string>(a: { readonly [Key in Name]: string }, b: { readonly [Key in Name]: string }) {
  return Object.keys(b).every(name => a[name as Name] === b[name as Name])
}

function bytesOf(hex: string): Uint8Array {
  const bytes = fromHex(hex)
  if (bytes === null) throw new Error('invariant broken: the schema lets only hexadecimal through')
  return bytes
}
