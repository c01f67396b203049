// The maker of a key as commands show it, and the registration line that they take. Pure. Fault
// invalid_request.

import { type KeyTag, readRegistration } from '../../contract/admin/key-registration.ts'
import type { KeyMaker } from '../../contract/key-rules.ts'
import { InputFault } from '../../terminal/exit.ts'

export function makerText({ made_by: maker }: { readonly made_by: KeyMaker }): string {
  return maker === 'client' ? 'its client' : 'minted by the host'
}

export function mintedHint(command: string): string {
  return `This host has seen the key and can act as its client. A client that makes its own with \`${command}\` prevents that.`
}

/** Name and description of the argument. */
export function registrationArgument(tag: KeyTag): [name: string, description: string] {
  return ['<registration>', `the line that the client's \`key new\` printed: ${tag}_ … _sha256_ …`]
}

/**
 * The line itself. Checked before anything is sent, for the text may be a whole key. InputFault.
 */
export function checkedRegistration(tag: KeyTag, text: string): string {
  const read = readRegistration(tag, text)
  if (read.ok) return text.trim()
  throw new InputFault(read.problem, { param: 'registration', remedy: 'pass the registration line of a new key' })
}
