// One host's line in a known_hosts file (sshd(8)). Effects: one file. Faults internal, invalid_request.

import { createHmac } from 'node:crypto'
import { mkdirSync, realpathSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { systemErrorCode, wrapFault } from '../base/fault.ts'
import { writeFileAtomic } from '../linux/files.ts'
import { MIB, readInput } from '../terminal/input-file.ts'
import type { KnownHost } from '../verifier/ssh-key.ts'

export type KnownHostsUpdate = {
  readonly path: string
  /** False if the line was there already, and no other of this host. */
  readonly isWritten: boolean
  /** How many older lines named this host. */
  readonly replaced: number
  /** Numbers, from 1, of hashed lines about this host, which stay; ssh(1) accepts their keys too. */
  readonly hashed: readonly number[]
}

const bytesMax = 16 * MIB

/** A reader of the file, ssh among them, sees the old lines or the new ones. A symbolic link stays one. */
export function writeKnownHost(path: string, host: KnownHost): KnownHostsUpdate {
  const target = existing(path)
  const old = target === null ? '' : fromLatin1(readInput({ path: target, param: 'known-hosts', bytesMax }))
  const { text, replaced, hashed } = withKnownHost(old, host)
  if (text === old) return { path, isWritten: false, replaced: 0, hashed }
  try {
    if (target === null) mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    const found = target === null ? null : statSync(target)
    const owner = found === null ? {} : { owner: { uid: found.uid, gid: found.gid } }
    writeFileAtomic(target ?? path, Buffer.from(text, 'latin1'), { mode: (found?.mode ?? 0o600) & 0o777, ...owner })
  } catch (error) {
    throw wrapFault(error, `the instance passed, but its key could not be kept: ${path}`)
  }
  return { path, isWritten: true, replaced, hashed }
}

export type KnownHostsRewrite = Pick<KnownHostsUpdate, 'replaced' | 'hashed'> & { readonly text: string }

/**
 * The text with the host's line at its end and no other plain line for this host. Other hosts on a line stay. Comments,
 * markers, patterns and hashed names stay as they are. The same text when nothing is to be done.
 */
export function withKnownHost(text: string, host: KnownHost): KnownHostsRewrite {
  const lines = text === '' ? [] : text.replace(/\n$/, '').split('\n')
  const hashed = lines.flatMap((line, at) => (isHashOf(line, host.hostname) ? [at + 1] : []))
  const about = lines.filter(line => namesOf(line).includes(host.hostname))
  if (about.length === 1 && about[0]?.replace(/\r$/, '') === host.line) return { text, replaced: 0, hashed }
  const others = lines.flatMap(line => {
    const names = namesOf(line)
    if (!names.includes(host.hostname)) return [line]
    const rest = names.filter(name => name !== host.hostname)
    // The rest of the line as it is: names end at the first blank.
    return rest.length === 0 ? [] : [`${rest.join(',')}${line.trimStart().replace(/^[^ \t]+/, '')}`]
  })
  return { text: [...others, host.line].map(line => `${line}\n`).join(''), replaced: about.length, hashed }
}

/** Plain names of a line, in lower case; none of comments, markers and hashed names. */
function namesOf(line: string): string[] {
  const [field = ''] = line.trimStart().split(/[ \t]/, 1)
  if (/^[#@|]/.test(field)) return []
  return field.toLowerCase().split(',')
}

/** `|1|salt|HMAC-SHA1(salt, name)`, both in base64. */
function isHashOf(line: string, hostname: string): boolean {
  const [, salt, hash] = /^\s*\|1\|([A-Za-z0-9+/=]+)\|([A-Za-z0-9+/=]+)[ \t]/.exec(line) ?? []
  if (salt === undefined || hash === undefined) return false
  return createHmac('sha1', Buffer.from(salt, 'base64')).update(hostname).digest('base64') === hash
}

/** Where the file really is; null when there is none. */
function existing(path: string): string | null {
  try {
    return realpathSync(path)
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return null
    throw wrapFault(error, path)
  }
}

/** Byte for byte, because the file may not be UTF-8. */
function fromLatin1(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('latin1')
}
