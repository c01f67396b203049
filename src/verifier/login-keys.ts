// The SSH keys that an instance lets in: that of its claim, or those that signed orders have set since. Pure.

import { type Parsed, parsed } from '../attest/malformed.ts'
import { type Check, check, fail, notChecked, pass } from '../attest/verdict.ts'
import { readSshKey, type SshKey } from './ssh-key.ts'

export type LoginKeysQuestion = {
  /** The key in the claim. */
  readonly claimed: Parsed<SshKey>
  /** Fingerprints in the statement; null if only the claim's key logs in, or if the statement cannot be read. */
  readonly stated: readonly string[] | null
  /** The caller's own keys in OpenSSH's format. */
  readonly own: string | readonly string[] | 'any'
  /** The only keys that may log in, in OpenSSH's format. Absent to accept and name those of signed orders. */
  readonly only?: readonly string[] | undefined
}

/** Checks that an own key logs in, and that no other key does than expected. */
export function loginKeyChecks(question: LoginKeysQuestion): Check[] {
  return [ownKeyCheck(question), onlyKeysCheck(question)]
}

function ownKeyCheck({ claimed, stated, own }: LoginKeysQuestion): Check {
  const name = 'own-key'
  if (!claimed.ok) return notChecked(name, 'the key in the claim cannot be read', true)
  const accepted = stated ?? [claimed.value.fingerprint]
  const [only = ''] = accepted
  const words = accepted.length === 1 ? `the key ${only} alone` : `${accepted.length} keys`
  if (own === 'any') return notChecked(name, `the instance accepts ${words}, of any owner`, false)
  const keys = (typeof own === 'string' ? [own] : own).map(line => parsed(() => readSshKey(line)))
  const found = keys.find(key => key.ok && accepted.includes(key.value.fingerprint))
  if (found?.ok) return pass(name, found.value.fingerprint)
  const [first, ...more] = keys
  if (first === undefined || more.length > 0) {
    return fail(name, `the instance lets in ${words}, which is none of the ${keys.length} that are yours`)
  }
  const yours = first.ok ? `yours is ${first.value.fingerprint}` : `your key: ${first.reason}`
  return fail(name, `the instance lets in ${words}, ${yours}`)
}

function onlyKeysCheck({ claimed, stated, only }: LoginKeysQuestion): Check {
  const name = 'login-keys'
  if (!claimed.ok) return notChecked(name, 'the key in the claim cannot be read', true)
  const accepted = stated ?? [claimed.value.fingerprint]
  const words = stated === null ? 'only the key of the claim' : `set by signed orders: ${accepted.join(', ')}`
  if (only === undefined) return pass(name, words)
  const expected = only.map(line => readSshKey(line).fingerprint)
  const strange = accepted.filter(fingerprint => !expected.includes(fingerprint))
  return check(name, strange.length === 0, `it lets in ${strange.join(', ')} too, which you do not expect`, words)
}
