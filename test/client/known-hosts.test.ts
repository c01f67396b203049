// Goal: one host's line comes into a known_hosts file, older ones go, and nothing else in it changes.

import { afterAll, describe, expect, test } from 'bun:test'
import { createHmac } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  findKnownHost,
  forgetKnownHost,
  knownHostFinder,
  withKnownHost,
  writeKnownHost,
} from '../../src/client/known-hosts.ts'
import { readKnownHost } from '../../src/verifier/ssh-key.ts'
import { ed25519Line } from '../rigs/instances/instance-attestation.ts'

const hostname = 'k3v9x2ma.acme.agents.example'
const host = readKnownHost(`${hostname} ${ed25519Line(1)}`, hostname)
const old = `${hostname} ${ed25519Line(2)}`
const dir = mkdtempSync(join(tmpdir(), 'srt-known-hosts-'))
afterAll(() => rmSync(dir, { recursive: true }))

function hashed(name: string): string {
  const salt = Buffer.from('salt of 20 bytes....')
  const hash = createHmac('sha1', salt).update(name).digest('base64')
  return `|1|${salt.toString('base64')}|${hash} ${ed25519Line(3)}`
}

describe('text', () => {
  // Goal: the host's line is the only plain one of the host, and stands at the end.
  test.each<readonly [string, string, string, number]>([
    ['nothing', '', `${host.line}\n`, 0],
    ['another host', 'a.example ssh-rsa AAAA\n', `a.example ssh-rsa AAAA\n${host.line}\n`, 0],
    ['a last line without its end', 'a.example ssh-rsa AAAA', `a.example ssh-rsa AAAA\n${host.line}\n`, 0],
    ['an older key', `${old}\na ssh-rsa A\n`, `a ssh-rsa A\n${host.line}\n`, 1],
    ['two older keys', `${old}\n${hostname} ssh-rsa AAAA\n`, `${host.line}\n`, 2],
    ['an older key beside the right one', `${host.line}\n${old}\n`, `${host.line}\n`, 2],
    ['the right one twice', `${host.line}\n${host.line}\n`, `${host.line}\n`, 2],
    ['an indented one in capitals', `\t ${hostname.toUpperCase()} ssh-rsa AAAA x\n`, `${host.line}\n`, 1],
    ['a list', `a,${hostname},10.0.0.1  ssh-rsa AAAA x\n`, `a,10.0.0.1  ssh-rsa AAAA x\n${host.line}\n`, 1],
  ])('goal: with %s', (_, text, expected, replaced) => {
    expect(withKnownHost(text, host)).toEqual({ text: expected, replaced, hashed: [] })
  })

  test('goal: the same text when the line is there already, with whatever end', () => {
    for (const text of [`a b c\n${host.line}\n`, host.line, `${host.line}\r\n`]) {
      expect(withKnownHost(text, host)).toEqual({ text, replaced: 0, hashed: [] })
    }
  })

  test('goal: comments, markers, patterns, ports, longer names, hashes and strange bytes stay as they are', () => {
    const others = [
      `# ${old}`,
      `@revoked ${old}`,
      `@cert-authority *.example ssh-rsa AAAA`,
      `*.acme.agents.example ssh-rsa AAAA`,
      `[${hostname}]:2222 ssh-rsa AAAA`,
      `x${hostname} ssh-rsa AAAA`,
      '',
      hashed('other.example'),
      'caf\u00e9\u00ff ssh-rsa AAAA',
      `dos.example ssh-rsa AAAA\r`,
    ]
    const text = `${others.join('\n')}\n`
    expect(withKnownHost(text, host)).toEqual({ text: `${text}${host.line}\n`, replaced: 0, hashed: [] })
  })

  test('goal: a hashed line of this host is left alone, and named', () => {
    const text = `a b c\n${hashed(hostname)}\n`
    expect(withKnownHost(text, host)).toEqual({ text: `${text}${host.line}\n`, replaced: 0, hashed: [2] })
  })

  test('goal: ssh-keygen reads what was written, and finds exactly this key', () => {
    const path = join(dir, 'found')
    writeFileSync(path, withKnownHost(`${old}\n${hashed('other.example')}\n`, host).text)
    const { stdout } = Bun.spawnSync(['ssh-keygen', '-F', hostname, '-f', path])
    expect(
      stdout
        .toString()
        .split('\n')
        .filter(line => line !== '' && !line.startsWith('#')),
    ).toEqual([host.line])
  })
})

describe('file', () => {
  test('goal: it is made with its directory, for its owner alone', () => {
    const path = join(dir, 'new/.ssh/known_hosts')
    expect(writeKnownHost(path, host)).toEqual({ path, isWritten: true, replaced: 0, hashed: [] })
    expect(readFileSync(path, 'utf8')).toBe(`${host.line}\n`)
    expect([statSync(path).mode & 0o777, statSync(join(dir, 'new/.ssh')).mode & 0o777]).toEqual([0o600, 0o700])
    expect(readdirSync(join(dir, 'new/.ssh'))).toEqual(['known_hosts'])
  })

  test('goal: it keeps its mode and its bytes, and a link stays a link', () => {
    const target = join(dir, 'target')
    writeFileSync(target, Buffer.from([0xff, 0xfe, 0x20, 0x61, 0x20, 0x62, 0x0a]))
    chmodSync(target, 0o644)
    const link = join(dir, 'link')
    symlinkSync(target, link)
    expect(writeKnownHost(link, host).isWritten).toBe(true)
    expect([lstatSync(link).isSymbolicLink(), statSync(target).mode & 0o777]).toEqual([true, 0o644])
    expect(readFileSync(target).subarray(0, 7)).toEqual(Buffer.from([0xff, 0xfe, 0x20, 0x61, 0x20, 0x62, 0x0a]))
  })

  test('goal: what is there already is not written again', () => {
    const path = join(dir, 'same')
    writeKnownHost(path, host)
    const { mtimeMs, ino } = statSync(path)
    expect(writeKnownHost(path, host)).toEqual({ path, isWritten: false, replaced: 0, hashed: [] })
    expect([statSync(path).mtimeMs, statSync(path).ino]).toEqual([mtimeMs, ino])
  })

  test('goal: where nothing can be written, the message says that the instance passed', () => {
    const path = join(dir, 'same', 'known_hosts')
    expect(() => writeKnownHost(path, host)).toThrow(path)
  })
})

describe('the key of a host', () => {
  const path = join(dir, 'own')
  const write = (text: string, mode = 0o600) => {
    writeFileSync(path, text)
    chmodSync(path, mode)
  }

  test('goal: it is found where there is exactly one plain line of the exact form', () => {
    write(`a.example ${ed25519Line(4)}\n${host.line}\n`)
    expect(findKnownHost(path, hostname)).toEqual(host)
    expect(findKnownHost(path, 'b.example')).toBeNull()
    expect(findKnownHost(join(dir, 'none'), hostname)).toBeNull()
  })

  test('goal: the keys of many hosts need one reading of the file', () => {
    const other = readKnownHost(`b3v9x2ma.acme.agents.example ${ed25519Line(4)}`, 'b3v9x2ma.acme.agents.example')
    write(`${other.line}\n${host.line}\n`)
    const find = knownHostFinder(path)
    rmSync(path)
    expect([find(hostname), find(other.hostname), find('constructor')]).toEqual([host, other, null])
  })

  // Goal: a line that trusts more than one key for one host is none.
  test.each([
    ['two lines', `${host.line}\n${old}\n`],
    ['a list', `${hostname},a.example ${ed25519Line(1)}\n`],
    ['another type', `${hostname} ssh-rsa AAAA\n`],
    ['a comment after it', `${host.line} x\n`],
    ['a marker', `@cert-authority ${host.line}\n`],
  ])('with %s there is none', (_, text) => {
    write(text)
    expect(findKnownHost(path, hostname)).toBeNull()
  })

  test('goal: a file that others may write is refused', () => {
    write(`${host.line}\n`, 0o622)
    expect(() => findKnownHost(path, hostname)).toThrow('others may write it')
  })

  test('goal: it is forgotten with all its lines, and other hosts stay', () => {
    write(`# ${host.line}\n${host.line}\na.example,${hostname} ssh-rsa AAAA\nb.example ssh-rsa AAAA\n`)
    forgetKnownHost(path, hostname)
    const rest = `# ${host.line}\na.example ssh-rsa AAAA\nb.example ssh-rsa AAAA\n`
    expect(readFileSync(path, 'utf8')).toBe(rest)
    const { ino } = statSync(path)
    forgetKnownHost(path, hostname)
    forgetKnownHost(join(dir, 'none'), hostname)
    expect([statSync(path).ino, existsSync(join(dir, 'none'))]).toEqual([ino, false])
  })
})
