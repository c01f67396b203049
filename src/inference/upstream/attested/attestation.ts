// The evidence that is asked of an upstream outside, as configured: kind and policy, where it is served, how often.
// Effects: reads files.

import { readFileSync } from 'node:fs'
import { Malformed, parsed } from '../../../attest/malformed.ts'
import { type Policy, parsePolicy } from '../../../attest/policy/policy.ts'
import { openRtmrs, parseTdxPolicy, type TdxPolicy } from '../../../attest/tdx/policy.ts'
import { utf8 } from '../../../base/bytes.ts'
import { Fault, messageOf } from '../../../base/fault.ts'
import type { UpstreamConfig } from '../../../config/upstream/upstream.ts'

/** Plain data: it stands in workload.json, and travels to the processes that serve clients. */
export type UpstreamAttestation = {
  readonly kind: 'snp' | 'tdx'
  /** Text of the policy, of this kind. */
  readonly policy: string
  /** Path of the evidence at the upstream's origin. */
  readonly path: string
  readonly intervalMs: number
  /** File of Intel's collateral, read for each verification; null: the upstream sends it with its quote. */
  readonly collateralFile: string | null
  /** PEM of a simulated root that counts; null: AMD's and Intel's alone. */
  readonly simulatedRoot: string | null
}

export type ReadPolicy =
  | { readonly kind: 'snp'; readonly policy: Policy }
  | { readonly kind: 'tdx'; readonly policy: TdxPolicy }

/** Throws Malformed. A policy that names no measurement would accept anybody's VM. */
export function readUpstreamPolicy({ kind, policy: text }: Pick<UpstreamAttestation, 'kind' | 'policy'>): ReadPolicy {
  if (kind === 'snp') {
    const policy = parsePolicy(text)
    if (policy.measurements === 'any') throw new Malformed('policy.measurements: name those that you expect')
    return { kind, policy }
  }
  const policy = parseTdxPolicy(text)
  if (policy.mrTds === 'any') throw new Malformed('policy.mrTds: name those that you expect')
  const [open] = openRtmrs(policy)
  if (open !== undefined)
    throw new Malformed(`policy.${open}: name those that you expect; MRTD is the firmware, which starts any kernel`)
  if (policy.reportData !== 'any') throw new Malformed('policy.reportData: it holds nonce and key; leave it "any"')
  return { kind, policy }
}

type Fields = Pick<UpstreamConfig, 'url'> &
  Pick<UpstreamConfig, 'attestation' | 'attestation_policy' | 'attestation_collateral' | 'attestation_path'> &
  Pick<UpstreamConfig, 'attestation_minutes' | 'attestation_simulated_root'>

/** Null: none is asked. Faults: config.file; config.invalid when fields contradict each other. */
export function loadAttestation(config: Fields, where: string): UpstreamAttestation | null {
  const invalid = (message: string) => new Fault('config.invalid', `${where}: ${message}`)
  const { attestation: kind, attestation_policy: policyFile, attestation_collateral: collateral } = config
  if (kind === '') {
    if (policyFile !== '' || collateral !== '' || config.attestation_simulated_root !== '')
      throw invalid('attestation_policy, attestation_collateral and attestation_simulated_root need attestation')
    return null
  }
  if (!config.url.startsWith('https:')) throw invalid('attestation needs an https url: evidence names a TLS key')
  if (policyFile === '') throw invalid('attestation needs attestation_policy')
  if (kind === 'snp' && collateral !== '') throw invalid('attestation_collateral is of TDX; SNP evidence has its own')
  const policy = readText(policyFile, `${where}: attestation_policy`)
  const read = parsed(() => readUpstreamPolicy({ kind, policy }))
  if (!read.ok) throw invalid(`attestation_policy: ${read.reason}`)
  const root = config.attestation_simulated_root
  return {
    kind,
    policy,
    path: config.attestation_path,
    intervalMs: config.attestation_minutes * 60_000,
    collateralFile: collateral === '' ? null : collateral,
    simulatedRoot: root === '' ? null : readText(root, `${where}: attestation_simulated_root`),
  }
}

/** SHA-256 of the policy's text, in hexadecimal: what receipts and verdicts name it by. */
export function policyDigest({ policy }: Pick<UpstreamAttestation, 'policy'>): string {
  return Buffer.from(Bun.CryptoHasher.hash('sha256', utf8(policy))).toString('hex')
}

const fileCharsMax = 65_536

function readText(path: string, what: string): string {
  try {
    const text = readFileSync(path, 'utf8')
    if (text.length > fileCharsMax) throw new Error(`${text.length} characters, at most ${fileCharsMax}`)
    return text
  } catch (error) {
    throw new Fault('config.file', `${what}: ${messageOf(error)}`, { cause: error })
  }
}
