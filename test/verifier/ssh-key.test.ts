// Goal: an SSH key is read in exactly its form, and a known_hosts line only if it trusts one Ed25519 key for one host.

import { describe, expect, test } from 'bun:test'
import { toHex } from '../../src/base/bytes.ts'
import { readKnownHost, readSshKey } from '../../src/verifier/ssh-key.ts'

/** A wire string of RFC 4251 section 5: length as four bytes, then the bytes. */
function wire(text: string | Uint8Array, length?: number): Buffer {
  const bytes = Buffer.from(text)
  const size = Buffer.alloc(4)
  size.writeUInt32BE(length ?? bytes.length)
  return Buffer.concat([size, bytes])
}
const point = Buffer.alloc(32, 7)
const blob = Buffer.concat([wire('ssh-ed25519'), wire(point)])
const base64 = blob.toString('base64')
const sha256 = new Bun.CryptoHasher('sha256').update(blob)
const digest = sha256.copy().digest('hex')
const fingerprint = `SHA256:${sha256.copy().digest('base64').replace(/=+$/, '')}`

describe('a key', () => {
  // Goal: the forms of one key give the same key.
  test.each([
    ['alone', `ssh-ed25519 ${base64}`],
    ['with a comment', `ssh-ed25519 ${base64} owner@example with words`],
    ['with a tab, spaces and the end of a line', ` ssh-ed25519\t ${base64}  \n`],
    ['with the end of a line of Windows', `ssh-ed25519 ${base64}\r\n`],
  ])('goal: %s is read, with its digest and its fingerprint', (_, line) => {
    const { type, blob: bytes, digest: found, fingerprint: shown } = readSshKey(line)
    expect([type, Buffer.from(bytes).toString('base64'), toHex(found), shown]).toEqual([
      'ssh-ed25519',
      base64,
      digest,
      fingerprint,
    ])
  })

  test('goal: ssh-keygen prints the same fingerprint', () => {
    const { stdout } = Bun.spawnSync(['ssh-keygen', '-l', '-f', '-'], { stdin: Buffer.from(`ssh-ed25519 ${base64}\n`) })
    expect(stdout.toString()).toContain(` ${fingerprint} `)
  })

  test('goal: another type is read too, with a name of up to 64 characters', () => {
    const longest = 'a'.repeat(64)
    expect(readSshKey(`${longest} ${wire(longest).toString('base64')}`).type).toBe(longest)
    const longer = 'a'.repeat(65)
    expect(() => readSshKey(`${longer} ${wire(longer).toString('base64')}`)).toThrow('does not begin with a key type')
  })

  const control = 'SSH key: more than one line, or control characters'
  const form = 'SSH key: not canonical base64 after the key type'
  const other = 'SSH key: names one key type and holds another'
  // Goal: each other form of a key is refused.
  test.each([
    ['two lines', `ssh-ed25519 ${base64} a\nb`, control],
    ['two ends of a line', `ssh-ed25519 ${base64}\n\n`, control],
    ['a carriage return', `ssh-ed25519 ${base64} a\rb`, control],
    ['an escape', `ssh-ed25519 ${base64} \x1b[2J`, control],
    ['a NUL', `ssh-ed25519 ${base64} \0`, control],
    ['a DEL', `ssh-ed25519 ${base64} \x7f`, control],
    ['nothing', '', 'SSH key: does not begin with a key type'],
    ['capitals', `SSH-ED25519 ${base64}`, 'SSH key: does not begin with a key type'],
    ['an option in front', `command="x" ssh-ed25519 ${base64}`, 'SSH key: does not begin with a key type'],
    ['no base64', 'ssh-ed25519', form],
    ['another alphabet', 'ssh-ed25519 ____', form],
    ['bits behind the end', `ssh-ed25519 ${Buffer.alloc(5).toString('base64').replace('AA=', 'AB=')}`, form],
    ['a blob of three bytes', `ssh-ed25519 ${Buffer.alloc(3).toString('base64')}`, form],
    ['a blob of four bytes', `ssh-ed25519 ${wire('').toString('base64')}`, form],
    ['a blob of five bytes', `ssh-ed25519 ${wire('a').toString('base64')}`, other],
    ['another type of the same length', `ssh-ed25519 ${wire('ssh-ed25518').toString('base64')}`, other],
    ['a longer type', `ssh-ed25519 ${wire('ssh-ed255190').toString('base64')}`, other],
    ['a name that is cut', `ssh-ed25519 ${wire('ssh-ed', 11).toString('base64')}`, other],
    ['a length that is not the name’s', `ssh-ed25519 ${wire('ssh-ed25519', 10).toString('base64')}`, other],
  ])('goal: %s is refused', (_, line, problem) => {
    expect(() => readSshKey(line)).toThrow(problem)
  })
})

describe('a known_hosts line', () => {
  const hostname = 'k3v9x2ma.acme.agents.example'
  const good = `${hostname} ssh-ed25519 ${base64}`

  test('goal: host name, type and key are read, and make the line', () => {
    const { hostname: name, key, line } = readKnownHost(good, hostname)
    expect([name, key.fingerprint, line]).toEqual([hostname, fingerprint, good])
  })

  const rsa = Buffer.concat([wire('ssh-rsa'), wire(point)]).toString('base64')
  const sized = (bytes: number) => Buffer.concat([wire('ssh-ed25519'), wire(Buffer.alloc(bytes))]).toString('base64')
  // Goal: each other form of a line is refused.
  test.each([
    ['two lines', `${good}\n* ssh-ed25519 ${base64}`, 'known_hosts: more than one line'],
    ['the end of a line', `${good}\n`, 'known_hosts: more than one line'],
    ['a carriage return', `${good}\r`, 'known_hosts: more than one line'],
    ['a marker', `@cert-authority ${good}`, 'known_hosts: a marker, such as @cert-authority'],
    ['another host', `other.example ssh-ed25519 ${base64}`, 'known_hosts: the host "other.example" is not "k3v9x2ma'],
    ['capitals', `${good.replace('acme', 'Acme')}`, 'known_hosts: the host "k3v9x2ma.Acme'],
    ['a port', `[${hostname}]:22 ssh-ed25519 ${base64}`, `known_hosts: the host "[${hostname}]:22" is not`],
    ['a space in front', ` ${good}`, 'known_hosts: the host "" is not'],
    ['another type', `${hostname} ssh-rsa ${rsa}`, 'known_hosts: the key type "ssh-rsa" is not ssh-ed25519'],
    ['another key in it', `${hostname} ssh-ed25519 ${rsa}`, 'known_hosts: names one key type and holds another'],
    ['a comment', `${good} comment`, 'known_hosts: something follows the key'],
    ['a space at its end', `${good} `, 'known_hosts: something follows the key'],
    ['no key', `${hostname} ssh-ed25519`, 'known_hosts: not canonical base64 after the key type'],
    ['a key of 31 bytes', `${hostname} ssh-ed25519 ${sized(31)}`, 'known_hosts: 50 bytes are no Ed25519 key'],
    ['a key of 33 bytes', `${hostname} ssh-ed25519 ${sized(33)}`, 'known_hosts: 52 bytes are no Ed25519 key'],
    [
      'a key of none',
      `${hostname} ssh-ed25519 ${wire('ssh-ed25519').toString('base64')}`,
      '15 bytes are no Ed25519 key',
    ],
    ...['*.example', 'k3v9x2m?.example', '!a.example', `${'a.example'},b.example`, '|1|c2FsdA==|aGFzaA=='].map(
      host => [host, `${host} ssh-ed25519 ${base64}`, 'known_hosts: a pattern, a list or a hash'] as const,
    ),
  ])('goal: %s is refused', (_, line, problem) => {
    expect(() => readKnownHost(line, line.startsWith('*') ? '*.example' : hostname)).toThrow(problem)
  })
})
