// One host's line in a known_hosts file (sshd(8)). Effects: one file. Faults internal, invalid_request.

import { createHmac } from 'node:crypto'
import { mkdirSync, realpathSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { parsed } from '../attest/malformed.ts'
import { systemErrorCode, wrapFault } from '../base/fault.ts'
import { writeFileAtomic } from '../linux/files.ts'
import { MIB, readInput } from '../terminal/input-file.ts'
import { type KnownHost, readKnownHost } from '../verifier/ssh-key.ts'
import { readOwnFile } from './client-config.ts'

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
  const old = textOf(path)
  const { text, replaced, hashed } = withKnownHost(old, host)
  if (text === old) return { path, isWritten: false, replaced: 0, hashed }
  replace(path, text, 'the instance passed, but its key could not be kept')
  return { path, isWritten: true, replaced, hashed }
}

/** Returns the one key of the host from a file that only its owner can change; null without a key, or with two. */
export function findKnownHost(path: string, hostname: string): KnownHost | null {
  return knownHostFinder(path)(hostname)
}

/** Reads the file once for many hosts; otherwise equal to `findKnownHost`. */
export function knownHostFinder(path: string): (hostname: string) => KnownHost | null {
  const linesByName = new Map<string, string[]>()
  for (const line of (readOwnFile(path, bytesMax) ?? '').split('\n')) {
    for (const name of new Set(namesOf(line))) {
      const lines = linesByName.get(name) ?? []
      lines.push(line)
      linesByName.set(name, lines)
    }
  }
  return hostname => {
    const lines = linesByName.get(hostname) ?? []
    const [line = ''] = lines
    const parsedLine = parsed(() => readKnownHost(line, hostname))
    return lines.length === 1 && parsedLine.ok ? parsedLine.value : null
  }
}

/** Removes the plain lines of the host. Faults internal, invalid_request. */
export function forgetKnownHost(path: string, hostname: string): void {
  const lines = linesOf(textOf(path))
  if (!lines.some(line => namesOf(line).includes(hostname))) return
  replace(path, textFrom(linesWithout(lines, hostname)), `the key of ${hostname} could not be removed`)
}

function textOf(path: string): string {
  const target = existing(path)
  return target === null ? '' : fromLatin1(readInput({ path: target, param: 'known-hosts', bytesMax }))
}

function replace(path: string, text: string, doing: string): void {
  try {
    const target = existing(path)
    if (target === null) mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    const found = target === null ? null : statSync(target)
    const owner = found === null ? {} : { owner: { uid: found.uid, gid: found.gid } }
    writeFileAtomic(target ?? path, Buffer.from(text, 'latin1'), { mode: (found?.mode ?? 0o600) & 0o777, ...owner })
  } catch (error) {
    throw wrapFault(error, `${doing}: ${path}`)
  }
}

export type KnownHostsRewrite = Pick<KnownHostsUpdate, 'replaced' | 'hashed'> & { readonly text: string }

/**
 * Returns the text with the host's line at its end and without other plain lines for this host. Keeps other hosts of a
 * line, comments, markers, patterns and hashed names. Returns the same text if nothing changes.
 */
export function withKnownHost(text: string, host: KnownHost): KnownHostsRewrite {
  const lines = linesOf(text)
  const hashed = lines.flatMap((line, at) => (isHashOf(line, host.hostname) ? [at + 1] : []))
  const about = lines.filter(line => namesOf(line).includes(host.hostname))
  if (about.length === 1 && about[0]?.replace(/\r$/, '') === host.line) return { text, replaced: 0, hashed }
  return { text: textFrom([...linesWithout(lines, host.hostname), host.line]), replaced: about.length, hashed }
}

function linesOf(text: string): string[] {
  return text === '' ? [] : text.replace(/\n$/, '').split('\n')
}

function textFrom(lines: readonly string[]): string {
  return lines.map(line => `${line}\n`).join('')
}

/** Returns the lines without this host. Keeps other hosts of its lines. */
function linesWithout(lines: readonly string[], hostname: string): string[] {
  return lines.flatMap(line => {
    const names = namesOf(line)
    if (!names.includes(hostname)) return [line]
    const rest = names.filter(name => name !== hostname)
    // Keep the rest of the line: names end at the first blank.
    return rest.length === 0 ? [] : [`${rest.join(',')}${line.trimStart().replace(/^[^ \t]+/, '')}`]
  })
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
