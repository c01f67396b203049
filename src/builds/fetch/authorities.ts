// Authorities that builds trust besides the public ones while they fetch (`builds.fetch_ca_file`). Effects: reads the
// file.

import { readFileSync, statSync } from 'node:fs'
import { Fault, messageOf } from '../../base/fault.ts'

/** The order of a build contains them, and has this much space for them. */
export const authoritiesCharsMax = 16_384
const field = 'builds.fetch_ca_file'

/** Reads the PEM. Fault config.file. */
export function readAuthorities(path: string): string {
  let text: string
  try {
    // Check before opening, because opening a FIFO would block.
    if (!statSync(path).isFile()) throw new Error(`${path} is not a regular file`)
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw new Fault('config.file', `${field}: ${messageOf(error)}`, { param: field, cause: error })
  }
  if (text.length <= authoritiesCharsMax && text.includes('-----BEGIN CERTIFICATE-----')) return text
  const message = `${field}: ${path} is not a PEM certificate, or has more than ${authoritiesCharsMax} characters`
  throw new Fault('config.file', message, { param: field })
}
