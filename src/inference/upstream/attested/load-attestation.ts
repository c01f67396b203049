// The evidence that an upstream must show, as configured on the host. Effects: reads files.

import { readFileSync } from 'node:fs'
import { parsed } from '../../../attest/malformed.ts'
import { Fault, messageOf } from '../../../base/fault.ts'
import type { UpstreamConfig } from '../../../config/upstream/upstream.ts'
import { readUpstreamPolicy, type UpstreamAttestation } from './attestation.ts'

type Fields = Pick<UpstreamConfig, 'url'> &
  Pick<UpstreamConfig, 'attestation' | 'attestation_policy' | 'attestation_collateral' | 'attestation_path'> &
  Pick<UpstreamConfig, 'attestation_minutes' | 'attestation_simulated_root'>

/**
 * Loads the requirement. Null if no evidence is required. Faults: config.file; config.invalid if fields contradict each
 * other.
 */
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
