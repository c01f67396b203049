import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { makeSandbox, seal, succeed } from '../../scripts/rigs/guest/root.ts'
import { systemClock } from '../../src/base/clock.ts'
import { createIdentity } from '../../src/guest/identity.ts'
import { sshKeyType, sshPublicKeyOf } from '../../src/guest/keys/ssh-host-key.codec.ts'

describe('the SSH host key', () => {
  // Goal: without one, the agent makes it, readable by root alone, and leaves no other file of it.
  test('is made when missing', async () => {
    await using sandbox = await makeSandbox()
    const { paths } = sandbox
    const identity = await createIdentity({ paths, clock: systemClock, hostKeyWaitMs: 0 })
    expect(fs.readdirSync(paths.runDir)).toEqual(['ssh_host_ed25519_key'])
    expect(fs.statSync(paths.sshHostKey).mode & 0o777).toBe(0o600)
    expect(succeed(['ssh-keygen', '-y', '-f', paths.sshHostKey]).trim()).toBe(identity.sshHostKey)
  })

  // Goal: one that init is still making is waited for, not replaced.
  test('is waited for', async () => {
    await using sandbox = await makeSandbox()
    const { paths } = sandbox
    const making = createIdentity({ paths, clock: systemClock, hostKeyWaitMs: 10_000 })
    succeed(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', '', '-f', `${paths.sshHostKey}.partial`])
    const publicKey = fs.readFileSync(`${paths.sshHostKey}.partial.pub`, 'utf8').trim()
    fs.renameSync(`${paths.sshHostKey}.partial`, paths.sshHostKey)
    expect((await making).sshHostKey).toBe(publicKey)
  })

  // Goal: a key of another kind, an encrypted one, or half a file is never announced.
  test('is read strictly', async () => {
    await using sandbox = await makeSandbox()
    const { root } = sandbox
    const make = (name: string, ...flags: string[]) => {
      succeed(['ssh-keygen', '-q', '-f', `${root}/${name}`, ...flags])
      return fs.readFileSync(`${root}/${name}`, 'utf8')
    }
    const good = make('good', '-t', 'ed25519', '-N', '')
    expect(sshPublicKeyOf(good)).toBe(fs.readFileSync(`${root}/good.pub`, 'utf8').split(' ').slice(0, 2).join(' '))
    expect(sshPublicKeyOf(make('ecdsa', '-t', 'ecdsa', '-N', ''))).toBeNull()
    expect(sshPublicKeyOf(make('encrypted', '-t', 'ed25519', '-N', 'passphrase', '-a', '1'))).toBeNull()
    expect(sshPublicKeyOf('')).toBeNull()
    expect(sshPublicKeyOf(good.slice(0, -40))).toBeNull()
    const body = good.split('\n').slice(1, -2).join('')
    const bytes = Uint8Array.fromBase64(body)
    for (let length = 0; length < bytes.length; length += 1) {
      const cut = `-----BEGIN OPENSSH PRIVATE KEY-----\n${bytes.subarray(0, length).toBase64()}\n-----END OPENSSH PRIVATE KEY-----\n`
      expect(sshPublicKeyOf(cut)).toBeNull()
    }
  })

  // Goal: no blob, however short or lying about its lengths, makes the reader throw or run past its end.
  test('types of broken blobs', () => {
    for (const blob of [[], [0, 0, 0], [0, 0, 0, 4, 65], [255, 255, 255, 255], [0, 0, 0, 1, 200]]) {
      expect(sshKeyType(Uint8Array.from(blob))).toBeNull()
    }
  })
})

describe('the box key', () => {
  // Goal: it opens what NaCl sealed to it, is new in every process, and is never written anywhere.
  test('stays in memory', async () => {
    await using sandbox = await makeSandbox()
    const { paths, root } = sandbox
    const first = await createIdentity({ paths, clock: systemClock, hostKeyWaitMs: 0 })
    const second = await createIdentity({ paths, clock: systemClock, hostKeyWaitMs: 0 })
    expect(second.boxKey).not.toBe(first.boxKey)
    expect(second.sshHostKey).toBe(first.sshHostKey)
    const sealed = seal('hello', first.boxKey)
    expect(new TextDecoder().decode(first.openBox(sealed) ?? undefined)).toBe('"hello"')
    expect(second.openBox(sealed)).toBeNull()
    const files = succeed(['find', `${root}/run`, '-type', 'f'])
      .trim()
      .split('\n')
    const allowed = [paths.sshHostKey, `${paths.sshHostKey}.pub`]
    expect(files.filter(path => !allowed.includes(path))).toEqual([])
    expect(files).toContain(paths.sshHostKey)
  })
})
