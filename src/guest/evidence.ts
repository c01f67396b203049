// Evidence of a claimed guest: a signed statement of kind `claim` over the host's nonce, and a report over the
// statement. Effects: the report device, and the receipt's file.
//
// These keys sign nothing else. The statement holds the guest's own facts: its launch, its keys, the claim and the
// network in force. The host adds the nonce and, without a report device, the measurement and the operator key that
// no hardware attests.

import { sha256 } from '../attest/hash.ts'
import { newStatement, type StatementFields } from '../attest/receipt/new-statement.ts'
import { reportDataOf, type StatementOf } from '../attest/receipt/statement.ts'
import { fromBase64Url, toBase64Url, utf8 } from '../base/bytes.ts'
import type { SimulatedLaunch } from '../contract/vm/agent.ts'
import type { GuestEvidence } from '../contract/vm/agent-responses.ts'
import { claimFieldsOf, claimFormat } from '../contract/vm/claim-document.ts'
import { type Owner, writeFileAtomic } from '../linux/files.ts'
import type { ClaimRecord } from './claim-record.ts'
import type { GuestPaths } from './paths.ts'
import { hexBytes, type Launch, readReceipt, type SignerDeps, StatementSigner } from './report/signed-statement.ts'
import { ok, type Refusal, refuse } from './wire.codec.ts'

export type Evidence = {
  /** Source of this guest's reports. */
  readonly platform: () => Promise<'snp' | 'none'>
  /** Makes evidence; one call at a time. Throws Fault internal if the device fails. */
  readonly make: (
    request: { readonly nonce: string; readonly simulated: SimulatedLaunch | null },
    claim: ClaimRecord | null,
  ) => Promise<{ ok: true; evidence: GuestEvidence } | Refusal>
  /** Runs the code of the first evidence once, with an empty claim, and drops the result. */
  readonly warmUp: () => Promise<void>
  /** Stores the receipt that the host made from the last evidence, for the verifier inside the guest. */
  readonly keep: (receipt: string) => { ok: true } | Refusal
}

/** Fields about what orders of the owner have changed; each is null before. */
export type OrderedFields = Pick<StatementOf<'claim'>, 'loginKeys' | 'egressPolicy' | 'secrets' | 'published'>

type EvidenceDeps = SignerDeps & {
  readonly paths: Pick<GuestPaths, 'receipt'>
  readonly owner: Owner
  readonly imageName: string
  readonly ordered: () => OrderedFields
  /** Bytes of TPM evidence over a nonce, or null. Never rejects. */
  readonly tpm: (nonce: Uint8Array) => Promise<Uint8Array | null>
}

export function createEvidence({ paths, owner, imageName, ordered, tpm, ...deps }: EvidenceDeps): Evidence {
  const signer = new StatementSigner(deps)
  let last: GuestEvidence | null = null

  return {
    platform: () => signer.platform(),
    make: async (request, claim) => {
      if (claim === null) return refuse('unclaimed', 'evidence: there is no claim yet')
      const nonce = fromBase64Url(request.nonce)
      if (nonce?.length !== 32) return refuse('bad_request', 'evidence.nonce: not 32 bytes in canonical base64url')
      const launched = await signer.launchOf('evidence', request.simulated)
      if (!launched.ok) return launched
      const fields = fieldsOf({ claim, launch: launched.launch, nonce, imageName, ordered: ordered() })
      const { statement, signed } = await signer.sign(fields)
      const quoted = await tpm(reportDataOf(statement))
      last = { ...signed, ...(quoted === null ? {} : { tpm: toBase64Url(quoted) }) }
      return { ok: true, evidence: last }
    },
    warmUp: async () => {
      const zeros = new Uint8Array(48)
      const nowhere = {
        claim: noClaim,
        launch: { measurement: zeros, operatorKey: zeros },
        nonce: zeros.subarray(16),
        imageName,
        ordered: { loginKeys: null, egressPolicy: null, secrets: null, published: null },
      }
      const statement = newStatement(fieldsOf(nowhere), { ...deps.keys, nowMs: 0 })
      Object.values(await deps.keys.signStatement(statement)).map(toBase64Url)
    },
    keep: text => {
      if (last === null) return refuse('unclaimed', 'receipt: there is no evidence yet')
      const read = readReceipt('receipt', text, last)
      if (!read.ok) return read
      if (read.receipt.evidence.tpm !== last.tpm)
        return refuse('bad_request', 'receipt: its TPM evidence differs from that of the last evidence')
      writeFileAtomic(paths.receipt, JSON.stringify(read.receipt), { mode: 0o644, owner })
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
      inference: { baseUrl: '', address: null, model: '', gateway: { kind: 'none' }, key: null },
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
  readonly ordered: OrderedFields
}

function fieldsOf({ claim, launch, nonce, imageName, ordered }: Facts): StatementFields {
  return {
    kind: 'claim',
    nonce,
    operatorKey: launch.operatorKey,
    image: { name: imageName, measurement: launch.measurement },
    organization: claim.organization,
    name: claim.name,
    hostname: claim.hostname,
    sshHostKeyDigest: hexBytes(claim.sshHostKeyDigest),
    publicKeyDigest: hexBytes(claim.publicKeyDigest),
    ...claimFieldsOf(claim.document, text => sha256(utf8(text))),
    ...ordered,
  }
}
