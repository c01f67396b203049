// Whom and what a verifier trusts, from the files of its options. Effects: reads files. Every Fault is invalid_request.

import { AMD_ROOTS, type TrustedRoot } from '../../attest/amd/roots.ts'
import { BUNDLE_LIMITS, derBlocks } from '../../attest/encoding/pem.ts'
import { type Policy, parsePolicy, strictPolicy } from '../../attest/policy/policy.ts'
import { MIB, readInput, readingInput, readJsonInput } from '../input-file.ts'
import { readSimulatedRoot } from './simulated-root.ts'

const policyBytesMax = MIB

export async function readRoots(path: string | undefined): Promise<readonly TrustedRoot[]> {
  if (path === undefined) return AMD_ROOTS
  const pem = readInput({ path, param: 'trust-simulated-root', bytesMax: BUNDLE_LIMITS.bytesMax })
  return [...AMD_ROOTS, await readingInput(`--trust-simulated-root ${path}`, () => readSimulatedRoot(pem))]
}

/** Without a file only what nobody wants is refused: who has no policy does not know at which VMPL the evidence was made. */
export async function readPolicy(path: string | undefined): Promise<Policy> {
  if (path === undefined) return { ...strictPolicy(), vmpls: 'any' }
  const document = readJsonInput({ path, param: 'policy', bytesMax: policyBytesMax })
  return await readingInput(`--policy ${path}`, () => parsePolicy(document))
}

/** DER of a revocation list. */
export async function readCrl(path: string | undefined): Promise<Uint8Array | undefined> {
  if (path === undefined) return undefined
  const bytes = readInput({ path, param: 'crl', bytesMax: BUNDLE_LIMITS.bytesMax })
  return await readingInput(`--crl ${path}`, () => derBlocks(bytes, 'X509 CRL', 'revocation list')[0])
}
