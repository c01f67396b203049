// Goal: what age encrypts to an SSH key opens with that private key alone, and the header made of it opens the same
// file for a one-time identity. Against age and ssh-keygen themselves.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Decrypter } from 'age-encryption'
import { systemRandom } from '../../../src/base/ids.ts'
import { ageHeaderIn, oneTimeHeader } from '../../../src/client/snapshots/age-header.ts'
import { readSshPrivateKey, sshIdentity } from '../../../src/client/snapshots/age-ssh.ts'
import { isSignedBy } from '../../../src/client/snapshots/ssh-signature.ts'
import { readSshKey } from '../../../src/verifier/ssh-key.ts'

let directory = ''
const at = (name: string) => join(directory, name)

function run(argv: readonly string[], input: Uint8Array | string = ''): Buffer {
  const { exitCode, stdout, stderr } = Bun.spawnSync([...argv], { stdin: Buffer.from(input) })
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${stderr}`)
  return stdout
}

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'strongroom-age-'))
  run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', at('ed25519')])
  run(['ssh-keygen', '-q', '-t', 'rsa', '-b', '2048', '-N', '', '-f', at('rsa')])
  run(['ssh-keygen', '-q', '-t', 'ecdsa', '-N', '', '-f', at('ecdsa')])
  run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', 'secret words', '-f', at('locked')])
  run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', at('other')])
})
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const plain = Buffer.from('what the owner has written\n'.repeat(10_000))

describe.each(['ed25519', 'rsa'])('%s', type => {
  test('goal: its private key opens the header; the one-time identity opens header and payload with age', async () => {
    const sealed = run(['age', '--encrypt', '--recipients-file', at(`${type}.pub`)], plain)
    const header = ageHeaderIn(sealed)
    if (header === null) throw new Error('no header')
    const read = readSshPrivateKey(readFileSync(at(type), 'utf8'))
    if (read.kind !== 'key') throw new Error(read.kind)
    const decrypter = new Decrypter()
    decrypter.addIdentity(sshIdentity(read.key))
    const fileKey = await decrypter.decryptHeader(header)
    expect(fileKey).toHaveLength(16)
    const once = oneTimeHeader(fileKey, systemRandom)
    writeFileSync(at('once'), `${once.identity}\n`, { mode: 0o600 })
    const again = Buffer.concat([once.header, sealed.subarray(header.length)])
    expect(run(['age', '--decrypt', '--identity', at('once')], again).equals(plain)).toBeTrue()
  })

  test('goal: another key, and a damaged stanza, open nothing', async () => {
    const sealed = run(['age', '--encrypt', '--recipients-file', at(`${type}.pub`)], plain)
    const header = ageHeaderIn(sealed) ?? new Uint8Array()
    const opens = async (name: string, bytes: Uint8Array) => {
      const read = readSshPrivateKey(readFileSync(at(name), 'utf8'))
      if (read.kind !== 'key') throw new Error(read.kind)
      const decrypter = new Decrypter()
      decrypter.addIdentity(sshIdentity(read.key))
      return await decrypter.decryptHeader(bytes).then(
        () => true,
        () => false,
      )
    }
    const lines = Buffer.from(header).toString('latin1').split('\n')
    const body = lines[2] ?? ''
    const flipped = `${body.startsWith('A') ? 'B' : 'A'}${body.slice(1)}`
    const damaged = Buffer.from([...lines.slice(0, 2), flipped, ...lines.slice(3)].join('\n'), 'latin1')
    expect([await opens(type, header), await opens('other', header), await opens(type, damaged)]).toEqual([
      true,
      false,
      false,
    ])
  })
})

test('goal: keys that age cannot encrypt to, keys with a passphrase and other files are told apart', () => {
  const kind = (name: string) => readSshPrivateKey(readFileSync(at(name), 'utf8')).kind
  expect(['ecdsa', 'locked', 'ed25519.pub'].map(kind)).toEqual(['unsupported', 'encrypted', 'other'])
  const locked = readSshPrivateKey(readFileSync(at('locked'), 'utf8'))
  const { blob } = readSshKey(readFileSync(at('locked.pub'), 'utf8'))
  expect(locked.kind === 'encrypted' && Buffer.from(locked.blob).equals(blob)).toBeTrue()
})

test('goal: a header ends with its last line; without one there is none', () => {
  const sealed = run(['age', '--encrypt', '--recipients-file', at('ed25519.pub')], plain)
  const header = Buffer.from(ageHeaderIn(sealed) ?? new Uint8Array()).toString('latin1')
  expect(header).toMatch(/^age-encryption\.org\/v1\n-> ssh-ed25519 \S+ \S+\n\S+\n--- \S+\n$/)
  expect([ageHeaderIn(sealed.subarray(0, header.length - 1)), ageHeaderIn(Buffer.from('--- '))]).toEqual([null, null])
})

describe('signatures', () => {
  const sign = (key: string, message: string, namespace = 'strongroom-snapshot', more: readonly string[] = []) =>
    run(['ssh-keygen', '-q', '-Y', 'sign', '-f', at(key), '-n', namespace, ...more], message).toString()
  const accepted = (armored: string, message = 'the header', key = 'ed25519') => {
    const { blob } = readSshKey(readFileSync(at(`${key}.pub`), 'utf8'))
    return isSignedBy({ armored, message, namespace: 'strongroom-snapshot', key: blob })
  }

  test('goal: a signature of ssh-keygen counts, by either hash', () => {
    const sha256 = sign('ed25519', 'the header', 'strongroom-snapshot', ['-O', 'hashalg=sha256'])
    expect([accepted(sign('ed25519', 'the header')), accepted(sha256)]).toEqual([true, true])
  })

  test('goal: another message, namespace, key or type, and a changed or cut signature, do not', () => {
    const good = sign('ed25519', 'the header')
    const lines = good.split('\n')
    const last = lines.at(-3) ?? ''
    const changed = [
      ...lines.slice(0, -3),
      `${last.startsWith('A') ? 'B' : 'A'}${last.slice(1)}`,
      ...lines.slice(-2),
    ].join('\n')
    expect(accepted(good, 'the Header')).toBeFalse()
    expect(accepted(sign('ed25519', 'the header', 'file'))).toBeFalse()
    expect(accepted(sign('other', 'the header'))).toBeFalse()
    expect(accepted(sign('rsa', 'the header'), 'the header', 'rsa')).toBeFalse()
    expect(accepted(changed)).toBeFalse()
    expect(accepted(lines.slice(0, -3).join('\n'))).toBeFalse()
    expect(accepted('')).toBeFalse()
  })
})
