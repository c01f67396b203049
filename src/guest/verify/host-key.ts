// Host-key binding: sshd presents the key of the attested claim. Pure: the caller provides the output of ssh-keyscan.

import type { StatementOf } from '../../attest/receipt/statement.ts'
import { check, fail, notChecked } from '../../attest/verdict.ts'
import { toHex } from '../../base/bytes.ts'
import { keyDigest } from '../claim-record.ts'
import { type Line, lineOf } from './line.ts'

type HostKeyQuestion = {
  /** Output of ssh-keyscan(1), or why there is none. */
  readonly scan: { readonly ok: boolean; readonly text: string }
  readonly statement: StatementOf<'claim'> | null
}

export function judgeHostKey({ scan, statement }: HostKeyQuestion): Line {
  const checks = [presented(scan), ...(scan.ok ? [bound(scan.text, statement)] : [])]
  const digest = statement === null ? '' : statement.sshHostKeyDigest.toBase64({ omitPadding: true })
  return lineOf('host-key binding', checks, `SHA256:${digest}, as sshd presents it and the claim states it`)
}

function presented({ ok, text }: HostKeyQuestion['scan']) {
  return check(
    'presented-key',
    ok && keysIn(text).length === 1,
    ok ? `sshd presents ${keysIn(text).length} keys` : text,
  )
}

function bound(text: string, statement: StatementOf<'claim'> | null) {
  const name = 'attested-key'
  if (statement === null) return notChecked(name, 'no evidence attests a claim: see the first line', true)
  const expected = toHex(statement.sshHostKeyDigest)
  const found = keysIn(text).map(keyDigestOrNull)
  if (found.length === 0) return fail(name, 'sshd presents no key')
  return check(
    name,
    found.every(found => found === expected),
    `sshd presents ${found.join(' and ')}, the claim states ${expected}`,
  )
}

/** `TYPE BASE64` of each `HOST TYPE BASE64`. */
function keysIn(text: string): string[] {
  const lines = text.split('\n').filter(line => line !== '' && !line.startsWith('#'))
  return lines.map(line => line.split(' ').slice(1).join(' '))
}

function keyDigestOrNull(line: string): string | null {
  try {
    return keyDigest(line)
  } catch {
    return null
  }
}
