// The owner of an instance who verifies its claim with the document of its daemon and a root of the owner's choice.
// Effects: reads the keys of an appliance.

import { expect } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import type { TrustedRoot } from '../../../src/attest/amd/roots.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { publicIdKey } from '../../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../../src/attest/launch/id-block-verify.ts'
import { parsed } from '../../../src/attest/malformed.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { type ReceiptVerdict, verifyReceipt } from '../../../src/attest/receipt/verify.ts'
import { fromBase64Url, fromHex, utf8 } from '../../../src/base/bytes.ts'
import { checkedJson } from '../../../src/contract/check.ts'
import type { InstanceAttestation } from '../../../src/contract/http/instance-attestation.ts'
import { LaunchDocument } from '../../../src/contract/vm/launch.ts'
import { sshKeyDigest } from '../../../src/instances/public-key.codec.ts'
import { expectedClaim, readClaim } from '../../../src/verifier/claim.ts'
import { readSimulatedRoot } from '../../../src/verifier/simulated-root.ts'

export type Expecting = {
  readonly nonce: string
  readonly organization: string
  readonly name: string
  readonly hostname: string
}

/** The owner's verification, with only the document from the daemon, and the root that the owner trusts. */
export async function verifyClaim(
  { receipt, launch, claim, known_hosts, public_key }: InstanceAttestation,
  { nonce, organization, name, hostname }: Expecting,
  { roots, operatorKey }: { roots: readonly TrustedRoot[]; operatorKey: Uint8Array },
): Promise<ReceiptVerdict<'claim'>> {
  const document = checkedJson(LaunchDocument, utf8(launch), { what: 'launch', code: 'internal' })
  const [host, ...hostKey] = known_hosts.split(' ')
  expect(host).toBe(hostname)
  return verifyReceipt(receipt, {
    kind: 'claim',
    nonce: fromBase64Url(nonce) ?? new Uint8Array(),
    asOf: Date.now(),
    ageMsMax: 'any',
    roots,
    requireCrl: true,
    policy: {
      ...strictPolicy(),
      measurements: [fromHex(document.measurement) ?? new Uint8Array()],
      hostData: sha256(utf8(launch)),
      idKeyDigest: operatorKey,
    },
    expected: {
      imageName: { equals: 'instance' },
      operatorKey: { equals: operatorKey },
      organization: { equals: organization },
      name: { equals: name },
      hostname: { equals: hostname },
      sshHostKeyDigest: { equals: sshKeyDigest(hostKey.join(' ')) },
      publicKeyDigest: { equals: sshKeyDigest(public_key) },
      ...expectedClaim(parsed(() => readClaim(claim))),
    },
    tpm: 'any',
  })
}

export function failedChecks({ checks }: ReceiptVerdict<'claim'>): string[] {
  return checks.filter(({ outcome }) => outcome === 'fail').map(({ name }) => name)
}

/** As an owner has it who was given the simulated root and the operator's public key. */
export async function trustOf({ stateDir }: Appliance) {
  const root = readSimulatedRoot(readFileSync(join(stateDir, 'simulator/root.pem')))
  const pem = readFileSync(join(stateDir, 'operator-key.pub.pem'), 'utf8')
  const spki = Buffer.from(pem.replaceAll(/-----[A-Z ]+-----|\s/g, ''), 'base64')
  const key = await crypto.subtle.importKey('spki', spki, { name: 'ECDSA', namedCurve: 'P-384' }, true, ['verify'])
  return { roots: [root], operatorKey: await idKeyDigest(await publicIdKey(key)) }
}
