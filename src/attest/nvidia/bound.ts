// Evidence of the GPUs of one VM, as its receipts carry it: made for a nonce that follows from the statement's, and
// named by the statement's digest of it. Pure; throws Malformed.
//
// { "format": "strongroom/gpu-evidence/v1", "devtools": "off", "evidences": [as nvattest writes them] }

import { concat, utf8 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { sha256 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import { type GpuEvidence, readGpuEvidence } from './evidence.ts'

export const gpuEvidenceFormat = 'strongroom/gpu-evidence/v1'
/** Eight GPUs take about 160 KiB. */
export const gpuEvidenceBytesMax = 512 * 1024

/** DevTools mode as the driver in the guest says: a report has no word of it. */
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
 * The 32 bytes for which each GPU makes its report: SHA-256 of the domain, the statement's nonce and its keysDigest, so
 * that reports made for another VM answer no nonce of this one.
 */
export function gpuNonce({ nonce, keysDigest }: { readonly nonce: Uint8Array; readonly keysDigest: Uint8Array }) {
  return sha256(concat(utf8(nonceDomain), nonce, keysDigest))
}
