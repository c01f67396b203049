// The maker of a key as commands show it, and the registration line that they take. Pure. Fault
// invalid_request.

import { InvalidArgumentError, Option } from 'commander'
import { type KeyTag, readRegistration } from '../../contract/admin/key-registration.ts'
import { keyNameProblem } from '../../contract/admin/key-terms.ts'
import type { KeyMaker } from '../../contract/key-rules.ts'
import { InputFault } from '../../terminal/exit.ts'

export function makerText({ made_by: maker }: { readonly made_by: KeyMaker }): string {
  return maker === 'client' ? 'its client' : 'minted by the host'
}

export function mintedHint(command: string): string {
  return `This host has seen the key and can act as its client. A client that makes its own with \`${command}\` prevents that.`
}

/** The operator's name for a new key. */
export function nameOption(): Option {
  return new Option('--name <name>', 'name of the key in lists and records, like ci (default: none)').argParser(
    (text: string) => {
      const problem = keyNameProblem(text)
      if (problem !== null) throw new InvalidArgumentError(`a key's name ${problem}.`)
      return text
    },
  )
}

/** Prefix and name of a key, for hints. */
export function keyWords({ prefix, name }: { readonly prefix: string; readonly name: string | null }): string {
  return name === null ? prefix : `${prefix} (${name})`
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
