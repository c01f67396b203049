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
  /** False if the file already had the line, and no other line for this host. */
  readonly isWritten: boolean
  /** Number of removed lines that named this host. */
  readonly replaced: number
  /** Line numbers, from 1, of hashed lines about this host. They stay, and ssh(1) accepts their keys too. */
  readonly hashed: readonly number[]
}

const bytesMax = 16 * MIB

/** Writes the line. A concurrent reader, such as ssh, sees the old lines or the new ones. Keeps a symbolic link. */
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
 * Returns the text with the host's line at its end and without other plain lines for this host. Keeps other hosts of a
 * line, comments, markers, patterns and hashed names. Returns the same text if nothing changes.
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
    // Keep the rest of the line: names end at the first blank.
    return rest.length === 0 ? [] : [`${rest.join(',')}${line.trimStart().replace(/^[^ \t]+/, '')}`]
  })
  return { text: [...others, host.line].map(line => `${line}\n`).join(''), replaced: about.length, hashed }
}

/** Returns a line's plain names in lower case. Empty for comments, markers and hashed names. */
function namesOf(line: string): string[] {
  const [field = ''] = line.trimStart().split(/[ \t]/, 1)
  if (/^[#@|]/.test(field)) return []
  return field.toLowerCase().split(',')
}

/** Matches `|1|salt|HMAC-SHA1(salt, name)`, both in base64. */
function isHashOf(line: string, hostname: string): boolean {
  const [, salt, hash] = /^\s*\|1\|([A-Za-z0-9+/=]+)\|([A-Za-z0-9+/=]+)[ \t]/.exec(line) ?? []
  if (salt === undefined || hash === undefined) return false
  return createHmac('sha1', Buffer.from(salt, 'base64')).update(hostname).digest('base64') === hash
}

/** Resolves the file's path; null if it does not exist. */
function existing(path: string): string | null {
  try {
    return realpathSync(path)
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return null
    throw wrapFault(error, path)
  }
}

/** Decodes byte by byte, because the file may not be UTF-8. */
function fromLatin1(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('latin1')
}
