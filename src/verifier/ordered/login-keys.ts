// The SSH keys that an instance lets in: that of its claim, or those that signed orders have set since. Pure.

import { type Parsed, parsed } from '../../attest/malformed.ts'
import { type Check, check, fail, notChecked, pass } from '../../attest/verdict.ts'
import { readSshKey, type SshKey } from '../ssh-key.ts'

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
export function loginKeyChecks({ claimed, stated, own, only }: LoginKeysQuestion): Check[] {
  if (!claimed.ok) {
    return ['own-key', 'login-keys'].map(name => notChecked(name, 'the key in the claim cannot be read', true))
  }
  const odd = stated?.find(text => !/^SHA256:[A-Za-z0-9+/]{43}$/.test(text))
  if (odd !== undefined) return [fail('login-keys-form', `${JSON.stringify(odd)} is no fingerprint of an SSH key`)]
  const accepted = stated ?? [claimed.value.fingerprint]
  const words = stated === null ? 'only the key of the claim' : `set by signed orders: ${stated.join(', ')}`
  const expected = only?.map(line => readSshKey(line).fingerprint)
  const strange = accepted.filter(fingerprint => expected?.includes(fingerprint) === false).join(', ')
  const reason = `it lets in ${strange} too, which you do not expect`
  return [ownKeyCheck(accepted, own), check('login-keys', strange === '', reason, words)]
}

function ownKeyCheck(accepted: readonly string[], own: LoginKeysQuestion['own']): Check {
  const name = 'own-key'
  const words = `the instance lets in ${accepted.length === 1 ? `the key ${accepted[0]} alone` : `${accepted.length} keys`}`
  if (own === 'any') return notChecked(name, `${words}, of any owner`, false)
  const keys = (typeof own === 'string' ? [own] : own).map(line => parsed(() => readSshKey(line)))
  const found = keys.find(key => key.ok && accepted.includes(key.value.fingerprint))
  if (found?.ok) return pass(name, found.value.fingerprint)
  const [first] = keys
  if (first === undefined || keys.length > 1) {
    return fail(name, `${words}, which is none of the ${keys.length} that are yours`)
  }
  return fail(name, `${words}, ${first.ok ? `yours is ${first.value.fingerprint}` : `your key: ${first.reason}`}`)
}
