// Authorities that builds trust besides the public ones while they fetch (`builds.fetch_ca_file`). Effects: reads it.

import { readFileSync, statSync } from 'node:fs'
import { Fault, messageOf } from '../../base/fault.ts'

/** The order of a build holds them, and has this much room for them. */
export const authoritiesCharsMax = 16_384
const field = 'builds.fetch_ca_file'

/** PEM. Fault config.file. */
export function readAuthorities(path: string): string {
  let text: string
  try {
    // Checked before it is opened, because opening a FIFO would block.
    if (!statSync(path).isFile()) throw new Error(`${path} is not a regular file`)
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw new Fault('config.file', `${field}: ${messageOf(error)}`, { param: field, cause: error })
  }
  if (text.length <= authoritiesCharsMax && text.includes('-----BEGIN CERTIFICATE-----')) return text
  const message = `${field}: ${path} is not a PEM certificate, or has more than ${authoritiesCharsMax} characters`
  throw new Fault('config.file', message, { param: field })
}
