// Orders of the kind `keys`: the SSH keys that log in, and that sign orders. Effects: two files of root.

import { fromHex, toBase64 } from '../../base/bytes.ts'
import { checkValue } from '../../contract/check.ts'
import { KeysBody, loginKeysMax } from '../../contract/vm/orders/order.ts'
import { ensureDir, type Owner, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import { isPublicKeyLine } from '../claim.plan.ts'
import { keyDigest } from '../claim-record.ts'
import type { GuestPaths } from '../paths.ts'
import type { OrderHandler, OrderOutcome } from './orders.ts'

type KeyPaths = Pick<GuestPaths, 'authorizedKeys' | 'orderedKeys' | 'ordersDir'>

/** The result of an order: the fingerprints of all keys that log in from now on. Open sessions stay open. */
export function createKeysHandler({ paths, owner }: { paths: KeyPaths; owner: Owner }): OrderHandler {
  return async body => {
    const read = checkValue(KeysBody, body)
    if (!read.ok) return no(read.problem)
    const lines = linesOf(readTextOrNull(paths.authorizedKeys))
    const changed = 'add' in read.value ? withKey(lines, read.value.add) : withoutKey(lines, read.value.remove)
    if (typeof changed === 'string') return no(changed)
    const text = `${changed.join('\n')}\n`
    ensureDir(paths.ordersDir, { mode: 0o755, owner })
    writeFileAtomic(paths.orderedKeys, text, { mode: 0o600, owner })
    // sshd reads it at each login, as the login user.
    writeFileAtomic(paths.authorizedKeys, text, { mode: 0o644, owner })
    return { ok: true, result: { keys: changed.map(fingerprintOf) } }
  }
}

/** Fingerprints of all keys that log in, once an order has changed them; null while only that of the claim does. */
export function loginKeys({ orderedKeys }: Pick<GuestPaths, 'orderedKeys'>): readonly string[] | null {
  const text = readTextOrNull(orderedKeys)
  return text === null ? null : linesOf(text).map(fingerprintOf)
}

function no(message: string): OrderOutcome {
  return { ok: false, message }
}

function withKey(lines: readonly string[], added: string): readonly string[] | string {
  if (!isPublicKeyLine(added))
    return 'add: not one OpenSSH public key without options: name the file that ends with .pub'
  if (lines.some(line => keyDigest(line) === keyDigest(added))) return lines
  if (lines.length >= loginKeysMax) return `add: ${loginKeysMax} keys log in already: remove one first`
  // Without the comment, which nothing checks.
  return [...lines, added.split(' ').slice(0, 2).join(' ')]
}

function withoutKey(lines: readonly string[], fingerprint: string): readonly string[] | string {
  const left = lines.filter(line => fingerprintOf(line) !== fingerprint)
  if (left.length === lines.length) return `remove: no key that logs in has the fingerprint ${fingerprint}`
  return left.length > 0 ? left : 'remove: the last key stays, because no other could log in: add one first'
}

/** Returns the form of `ssh-keygen -l`. */
function fingerprintOf(line: string): string {
  return `SHA256:${toBase64(fromHex(keyDigest(line)) ?? new Uint8Array(0)).replace(/=+$/, '')}`
}

function linesOf(text: string | null): string[] {
  return (text ?? '').split('\n').filter(line => line !== '')
}
