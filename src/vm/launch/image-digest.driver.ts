// Identity of an image: the digest of its manifest, which lists the digests of all parts. Effects: reads a file.

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { wrapFault } from '../../base/fault.ts'

/** Returns the SHA-256 in lowercase hexadecimal. */
export function sha256Hex(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** Returns the SHA-256 of the manifest, hexadecimal. Throws Fault image.invalid if there is no manifest. */
export function imageDigest(directory: string): string {
  const path = `${directory}/manifest.json`
  try {
    return sha256Hex(readFileSync(path))
  } catch (error) {
    throw wrapFault(error, `read image manifest ${path}`, 'image.invalid')
  }
}
