// The configured evidence requirement of an outside upstream: kind and policy, where it is served, how often. Pure.

import { Malformed } from '../../../attest/malformed.ts'
import { type Policy, parsePolicy } from '../../../attest/policy/policy.ts'
import { openRtmrs, parseTdxPolicy, type TdxPolicy } from '../../../attest/tdx/policy.ts'
import { utf8 } from '../../../base/bytes.ts'

/** Plain data, because it is part of workload.json and is sent to the processes that serve clients. */
export type UpstreamAttestation = {
  readonly kind: 'snp' | 'tdx'
  /** Text of the policy, of this kind. */
  readonly policy: string
  /** Path of the evidence at the upstream's origin. */
  readonly path: string
  readonly intervalMs: number
  /** File of Intel's collateral, read for each verification; null if the upstream sends it with its quote. */
  readonly collateralFile: string | null
  /** PEM of a simulated root that is accepted; null means only AMD's and Intel's. */
  readonly simulatedRoot: string | null
}

export type ReadPolicy =
  | { readonly kind: 'snp'; readonly policy: Policy }
  | { readonly kind: 'tdx'; readonly policy: TdxPolicy }

/** Parses the policy. Throws Malformed. A policy that names no measurement would accept anybody's VM. */
export function readUpstreamPolicy({ kind, policy: text }: Pick<UpstreamAttestation, 'kind' | 'policy'>): ReadPolicy {
  if (kind === 'snp') {
    const policy = parsePolicy(text)
    if (policy.measurements === 'any') throw new Malformed('policy.measurements: list the expected ones')
    return { kind, policy }
  }
  const policy = parseTdxPolicy(text)
  if (policy.mrTds === 'any') throw new Malformed('policy.mrTds: list the expected ones')
  const [open] = openRtmrs(policy)
  if (open !== undefined)
    throw new Malformed(
      `policy.${open}: list the expected ones; MRTD measures only the firmware, which starts any kernel`,
    )
  if (policy.reportData !== 'any') throw new Malformed('policy.reportData: it holds nonce and key; leave it "any"')
  return { kind, policy }
}

/** Returns the SHA-256 of the policy's text, in hexadecimal, by which receipts and verdicts name the policy. */
export function policyDigest({ policy }: Pick<UpstreamAttestation, 'policy'>): string {
  return Buffer.from(Bun.CryptoHasher.hash('sha256', utf8(policy))).toString('hex')
}
