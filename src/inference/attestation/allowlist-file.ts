// The operator's own allowlist of workloads. Effects: reads its file.

import { readFileSync } from 'node:fs'
import { Fault, systemErrorCode, wrapFault } from '../../base/fault.ts'

const allowlistBytesMax = 1_048_576

/** Reads the operator's own allowlist. Null if there is none. Throws Fault config.file. */
export function readAllowlist(path: string): Uint8Array | null {
  try {
    const bytes = readFileSync(path)
    if (bytes.length > allowlistBytesMax) throw new Fault('config.file', `more than ${allowlistBytesMax} bytes`)
    return bytes
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return null
    throw wrapFault(error, `read the allowlist ${path}`, 'config.file')
  }
}
