// Registration lines: the part of a key that its client gives to the operator. Pure.
//
// line = TAG `_` prefix `_sha256_` SHA-256 of the secret, in lowercase hexadecimal
//
// No line is a key and no key is a line: a key's secret has 18 or 32 characters and no underscore.

import { fromHex, toHex } from '../../base/bytes.ts'
import type { CheckResult } from '../check.ts'

/** `ca`: keys of services A and C. `gw`: keys of the inference gateway. */
export type KeyTag = 'ca' | 'gw'

export type KeyRegistration = { readonly prefix: string; readonly secretSha256: Uint8Array }

const NEW_COMMANDS = { ca: 'strongroom key new', gw: 'strongroom gateway key new' } as const
const ADD_COMMANDS = { ca: 'strongroom key add', gw: 'strongroom gateway key add' } as const

const linePattern = /^(ca|gw)_([a-z0-9]{8})_sha256_([0-9a-f]{64})$/
/** A whole key, alone or within other text such as a header. */
const keyPattern = /(?:^|[^a-z0-9])(?:ca|gw)_[a-z0-9]{8}_[a-z0-9]{18,}/

const keyTextPattern = /^(?:ca|gw)_[a-z0-9]{8}_(?:[a-z0-9]{18}|[a-z0-9]{32})\s*$/
/** UTF-16 units of the longest key, with the end of its line. */
export const keyTextCharsMax = 46

/** Whether a text is a whole key and nothing else, as `key new` writes it into a file. */
export function isKeyText(text: string): boolean {
  return keyTextPattern.test(text)
}

export function registrationLine(tag: KeyTag, { prefix, secretSha256 }: KeyRegistration): string {
  return `${tag}_${prefix}_sha256_${toHex(secretSha256)}`
}

/**
 * Reads the line of a key with this tag. A problem never repeats the text, which may be a secret.
 */
export function readRegistration(tag: KeyTag, text: string): CheckResult<KeyRegistration> {
  const line = text.trim()
  const [, found, prefix, hex] = linePattern.exec(line) ?? []
  const secretSha256 = hex === undefined ? null : fromHex(hex)
  if (found === tag && prefix !== undefined && secretSha256 !== null) {
    return { ok: true, value: { prefix, secretSha256 } }
  }
  if (keyPattern.test(line)) {
    const problem = `this is a whole key, not its registration line. This host and your shell history have seen it, so do not use it: make another key with \`${NEW_COMMANDS[tag]}\` and give the operator its registration line only`
    return { ok: false, problem }
  }
  if (found === 'ca' || found === 'gw') {
    return {
      ok: false,
      problem: `this line registers a key with ${found}_: register it with \`${ADD_COMMANDS[found]}\``,
    }
  }
  const problem = `not a registration line, which is ${tag}_, 8 characters, _sha256_ and 64 hexadecimal digits, as \`${NEW_COMMANDS[tag]}\` prints it`
  return { ok: false, problem }
}
