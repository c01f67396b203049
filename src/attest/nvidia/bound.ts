// Evidence of the GPUs of one VM, as its receipts contain it: made for a nonce derived from the statement's, and bound
// by its digest in the statement. Pure; throws Malformed.
//
// { "format": "strongroom/gpu-evidence/v1", "devtools": "off", "evidences": [as nvattest writes them] }

import { concat, utf8 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { sha256 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import { type GpuEvidence, readGpuEvidence } from './evidence.ts'

export const gpuEvidenceFormat = 'strongroom/gpu-evidence/v1'
/** Size limit. The evidence of eight GPUs takes about 160 KiB. */
export const gpuEvidenceBytesMax = 512 * 1024

/** DevTools mode as reported by the driver in the guest, because a GPU's report does not include it. */
export const DEVTOOLS = ['off', 'on', 'unknown'] as const
export type Devtools = (typeof DEVTOOLS)[number]

export type BoundGpuEvidence = { readonly devtools: Devtools; readonly evidence: readonly GpuEvidence[] }

export function readBoundGpuEvidence(bytes: Uint8Array): BoundGpuEvidence {
  const what = 'GPU evidence'
  wellFormed(bytes.length <= gpuEvidenceBytesMax, `${what}: ${bytes.length} bytes, at most ${gpuEvidenceBytesMax}`)
  const document = parsedJson(what, bytes)
  wellFormed(typeof document === 'object' && document !== null, `${what}: not an object`)
  wellFormed('format' in document && document.format === gpuEvidenceFormat, `${what}: another format`)
  const devtools = DEVTOOLS.find(word => 'devtools' in document && document.devtools === word)
  wellFormed(devtools !== undefined, `${what}: devtools is not ${DEVTOOLS.join(', ')}`)
  return { devtools, evidence: readGpuEvidence(bytes) }
}

const nonceDomain = 'strongroom/gpu-nonce/v1\0'

/**
 * Returns the 32-byte nonce of the GPUs' reports: SHA-256 of the domain, the statement's nonce and its keysDigest.
 * Reports made for another VM therefore never match a nonce of this VM.
 */
export function gpuNonce({ nonce, keysDigest }: { readonly nonce: Uint8Array; readonly keysDigest: Uint8Array }) {
  return sha256(concat(utf8(nonceDomain), nonce, keysDigest))
}
