// A claim with every field, its document, and a statement of it: correct unless a test changes it.

import { sha256 } from '../../../src/attest/hash.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import type { Claim, DrawnKey } from '../../../src/contract/vm/claim.ts'
import {
  type ClaimDocument,
  type ClaimFields,
  claimDocument,
  claimFieldsOf,
  claimText,
} from '../../../src/contract/vm/claim-document.ts'
import type { AttestedGateway, InferenceGateway } from '../../../src/contract/vm/inference-gateway.ts'
import type { Network } from '../../../src/contract/vm/network.ts'

export const sampleGateway: AttestedGateway = {
  kind: 'attested',
  measurements: ['c1'.repeat(48)],
  operatorKey: 'c2'.repeat(48),
  workloads: ['c3'.repeat(32)],
  outside: [],
  simulatedRoot: '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n',
}

export const sampleNetwork: Network = {
  address: '10.88.0.1',
  gateway: '169.254.88.1',
  v6: { address: 'fd00::2', gateway: 'fe80::1', gatewayMac: '02:00:00:00:00:01' },
  mtuBytes: 1500,
  resolvers: ['192.0.2.53'],
}

export type ClaimOwner = {
  readonly organization: string
  readonly name: string
  readonly hostname: string
  readonly publicKey: string
}

export function sampleClaim(owner: ClaimOwner, gateway: InferenceGateway = sampleGateway): Claim {
  const { organization, name, hostname, publicKey } = owner
  return {
    claimId: 'claim-1',
    organization,
    name,
    hostname,
    publicKey,
    inference: {
      baseUrl: 'https://inference.strongroom.internal:8442/v1',
      address: '169.254.88.1',
      model: 'tiny',
      gateway,
      drawsKey: true,
      contextTokens: 8192,
    },
    egress: { limitBytes: 5_368_709_120, names: 'any' },
  }
}

export function sampleDocument(owner: ClaimOwner, gateway: InferenceGateway = sampleGateway): ClaimDocument {
  return documentOf(sampleClaim(owner, gateway))
}

/** The key that the samples' guest drew: SHA-256 of 32 characters `s`. */
export const sampleKey: DrawnKey = { prefix: '0a1b2c3d', secretSha256: toHex(sha256(utf8('s'.repeat(32)))) }

export function drawnOf(claim: Claim): DrawnKey | null {
  return claim.inference.drawsKey ? sampleKey : null
}

export function documentOf(claim: Claim, network: Network | null = sampleNetwork): ClaimDocument {
  return claimDocument(claim, network, drawnOf(claim))
}

export function sampleClaimText(owner: ClaimOwner, gateway: InferenceGateway = sampleGateway): string {
  return claimText(sampleDocument(owner, gateway))
}

export function sampleFields(document: ClaimDocument): ClaimFields {
  return claimFieldsOf(document, text => sha256(utf8(text)))
}
