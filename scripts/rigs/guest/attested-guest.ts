// Evidence of a claimed guest on a simulated platform, correct unless a test changes it.

import { sha256 } from '../../../src/attest/hash.ts'
import { portableSigner } from '../../../src/attest/receipt/hybrid-keys.ts'
import { issueReceipt } from '../../../src/attest/receipt/issue.ts'
import type { StatementFields } from '../../../src/attest/receipt/new-statement.ts'
import type { SimulatedReport } from '../../../src/attest/simulator/report.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { type LaunchDocument, launchFormat, launchText } from '../../../src/contract/vm/launch.ts'
import { statedFields } from '../../../src/instances/claim.plan.ts'
import type { ClaimedAs } from '../../../src/instances/evidence.verify.ts'
import { sshKeyDigest } from '../../../src/instances/public-key.codec.ts'
import type { VmEvidence } from '../../../src/vm/engine.ts'
import type { HostTrust } from '../../../src/vm/evidence/launch-policy.plan.ts'
import { countingRandom, measurement, operatorKey, sampleKeys, simulatedSource } from '../gateway/receipt-samples.ts'
import { type ClaimOwner, sampleClaimText } from '../instances/sample-claim.ts'
import { simulatedAsOf, simulatedPlatform } from '../launch/simulated-platform.ts'

export const guestHostKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsJzTQ0tPK4Tw9J6f8W6S1QhIYzG1mJtN5gRt0cMZrE'

const digest = (byte: number) => toHex(new Uint8Array(32).fill(byte))

export const launchDocument: LaunchDocument = {
  format: launchFormat,
  image: { name: 'instance', rootHash: digest(1), inputsSha256: digest(2) },
  vehicle: 'ovmf',
  firmwareSha256: digest(3),
  kernelSha256: digest(4),
  initrdSha256: digest(5),
  cmdlineSha256: digest(6),
  vcpus: 2,
  vcpuType: 'EPYC-v4',
  memoryMib: 2048,
  policy: '0x30000',
  measurement: toHex(measurement),
}

/** Deviations from correct evidence. */
export type EvidenceChange = {
  /** Fields of the statement. */
  readonly fields?: Partial<Extract<StatementFields, { kind: 'claim' }>>
  /** Fields of the report. */
  readonly report?: Partial<SimulatedReport>
  /** The launch that the host claims. */
  readonly launch?: string
  /** And with which operator key. */
  readonly launchedWith?: Uint8Array
}

/** Claimed with the samples' claim. */
export function claimedOf(owner: ClaimOwner): ClaimedAs {
  const { organization, name, hostname, publicKey } = owner
  const claim = sampleClaimText(owner)
  return { organization, name, hostname, publicKey, sshHostKey: guestHostKey, claim }
}

export async function simulatedTrust(): Promise<HostTrust> {
  const { authority } = await simulatedPlatform('genoa')
  return { roots: [authority.root], simulated: true, operatorKeys: [operatorKey] }
}

/** Evidence of a guest with this claim, over a nonce. */
export async function evidenceOf(
  { nonce, claimed }: { readonly nonce: Uint8Array; readonly claimed: ClaimedAs },
  change: EvidenceChange = {},
): Promise<VmEvidence> {
  const launch = change.launch ?? launchText(launchDocument)
  const receipt = await issueReceipt({
    fields: {
      kind: 'claim',
      nonce,
      operatorKey,
      image: { name: launchDocument.image.name, measurement },
      organization: claimed.organization,
      name: claimed.name,
      hostname: claimed.hostname,
      sshHostKeyDigest: sshKeyDigest(claimed.sshHostKey),
      publicKeyDigest: sshKeyDigest(claimed.publicKey),
      ...statedFields(claimed.claim),
      loginKeys: null,
      egressPolicy: null,
      secrets: null,
      published: null,
      ...change.fields,
    },
    publicKeys: sampleKeys().publicKeys,
    sign: portableSigner(sampleKeys().secretKeys, countingRandom(50)),
    evidenceSource: simulatedSource({ hostData: sha256(utf8(launch)), ...change.report }),
    platform: 'simulated',
    nowMs: simulatedAsOf.getTime(),
  })
  return { receipt, launch, operatorKey: change.launchedWith ?? operatorKey, simulated: true }
}
