// Evidence of GPUs and switches in the format of NVIDIA's tools. Pure; throws Malformed.
//
// One object, a list of them, or the document of `nvattest collect-evidence` around a list:
//   { "arch": "HOPPER", "nonce": HEX, "evidence": base64 of the report, "certificate": base64 of the chain in PEM }.
// Other fields are ignored, and so is the nonce: the authoritative one is in the report.

import { fromBase64 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { derBlocks } from '../encoding/pem.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { reportBytesMax } from './spdm.ts'

export type GpuEvidence = {
  /** Architecture in the document; it must match the certificates. */
  readonly arch: string
  /** SPDM request and response. */
  readonly report: Uint8Array
  /** Certificates in DER, from the leaf upwards. */
  readonly certificates: readonly Uint8Array[]
}

/** Limit for one host: the largest have 8 GPUs and 4 switches, or 16 GPUs in one enclosure. */
const gpusMax = 32
export const evidenceBytesMax = gpusMax * 128 * 1024

export function readGpuEvidence(bytes: Uint8Array): readonly GpuEvidence[] {
  const what = 'GPU evidence'
  wellFormed(bytes.length <= evidenceBytesMax, `${what}: ${bytes.length} bytes, at most ${evidenceBytesMax}`)
  const document = parsedJson(what, bytes)
  const list = isRecord(document) && 'evidences' in document ? document.evidences : document
  const entries: readonly unknown[] = Array.isArray(list) ? list : [list]
  wellFormed(entries.length >= 1 && entries.length <= gpusMax, `${what}: ${entries.length} devices, 1 to ${gpusMax}`)
  return entries.map((entry, at) => {
    const where = `${what}: device ${at}`
    wellFormed(isRecord(entry), `${where}: not an object`)
    const arch = requireText(entry, 'arch', where)
    wellFormed(/^[A-Za-z0-9_ ]{1,32}$/.test(arch), `${where}: arch is not a name`)
    const report = base64Of(entry, 'evidence', where)
    wellFormed(report.length <= reportBytesMax, `${where}: a report of ${report.length} bytes`)
    const certificates = derBlocks(base64Of(entry, 'certificate', where), 'CERTIFICATE', `${where}: certificate`)
    return { arch: arch.toUpperCase(), report, certificates }
  })
}

function requireText(entry: Readonly<Record<string, unknown>>, name: string, where: string): string {
  const value = entry[name]
  if (typeof value !== 'string') throw new Malformed(`${where}: ${name} is missing or no text`)
  return value
}

function base64Of(entry: Readonly<Record<string, unknown>>, name: string, where: string): Uint8Array {
  const bytes = fromBase64(requireText(entry, name, where))
  if (bytes === null) throw new Malformed(`${where}: ${name} is not base64`)
  return bytes
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
