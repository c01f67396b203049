// Which image a directory holds now: the digest of its manifest, which has the digests of all its parts. Effects: reads a file.

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { wrapFault } from '../../base/fault.ts'

/** Lowercase. */
export function sha256Hex(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** SHA-256 in hexadecimal digits. Fault: image.invalid (no manifest there). */
export function imageDigest(directory: string): string {
  const path = `${directory}/manifest.json`
  try {
    return sha256Hex(readFileSync(path))
  } catch (error) {
    throw wrapFault(error, `read image manifest ${path}`, 'image.invalid')
  }
}
