// Goal: an order adds and removes keys that log in, never the last one, and leaves no half-written file.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { createKeysHandler, loginKeys } from '../../../src/guest/orders/keys.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { newOwnerKey } from '../../rigs/guest/signed-order.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-keys-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))
const [first, second] = [newOwnerKey(dir, 'first'), newOwnerKey(dir, 'second')]
const { uid, gid } = userInfo()
let paths = guestPaths('')
beforeEach(() => {
  const root = mkdtempSync(join(dir, 'root-'))
  const ordersDir = join(root, 'orders')
  paths = { ...guestPaths(root), authorizedKeys: join(root, 'keys'), ordersDir, orderedKeys: join(ordersDir, 'keys') }
  writeFileSync(paths.authorizedKeys, `${first.publicKey}\n`)
})

const order = (body: unknown) => createKeysHandler({ paths, owner: { uid, gid } })(body, { counter: 1 })
const onDisk = () => readFileSync(paths.authorizedKeys, 'utf8')

test('goal: a key is added, stated, and removed', async () => {
  expect(loginKeys(paths)).toBeNull()
  const both = { ok: true, result: { keys: [first.fingerprint, second.fingerprint] } } as const
  expect(await order({ add: second.publicKey })).toEqual(both)
  expect(await order({ add: second.publicKey })).toEqual(both)
  const bare = second.publicKey.split(' ').slice(0, 2).join(' ')
  expect(onDisk()).toBe(`${first.publicKey}\n${bare}\n`)
  expect(statSync(paths.authorizedKeys).mode & 0o777).toBe(0o644)
  expect(loginKeys(paths)).toEqual([first.fingerprint, second.fingerprint])
  expect(await order({ remove: first.fingerprint })).toEqual({ ok: true, result: { keys: [second.fingerprint] } })
  expect(onDisk()).toBe(`${bare}\n`)
  // Back to the claim's key: an order has set it, so it is stated.
  await order({ add: first.publicKey })
  await order({ remove: second.fingerprint })
  expect(loginKeys(paths)).toEqual([first.fingerprint])
  expect(readdirSync(paths.ordersDir)).toEqual(['keys'])
})

test('goal: what is no key, no key of these, or the last one is refused by name', async () => {
  const bad: [unknown, string][] = [
    [{ add: `command="id" ${second.publicKey}` }, 'add: '],
    [{ add: `${second.publicKey}\n${first.publicKey}` }, 'add: '],
    [{ add: second.publicKey.replace('ssh-ed25519', 'ssh-rsa') }, 'add: '],
    [{ add: 'cert-authority ssh-ed25519 AAAA' }, 'add: '],
    [{ add: second.publicKey, remove: first.fingerprint }, '/'],
    [{ remove: second.fingerprint }, 'remove: no key'],
    [{ remove: first.fingerprint }, 'remove: the last key stays'],
    [{ remove: 'SHA256:x' }, '/'],
    [null, '/'],
  ]
  for (const [body, word] of bad) {
    const outcome = await order(body)
    expect([body, outcome.ok]).toEqual([body, false])
    expect(outcome.ok ? '' : outcome.message).toContain(word)
  }
  expect(onDisk()).toBe(`${first.publicKey}\n`)
  expect(loginKeys(paths)).toBeNull()
})

test('goal: at most 16 keys log in', async () => {
  for (let at = 1; at < 16; at += 1) {
    const key = Buffer.concat([Buffer.from('0000000b7373682d6564323535313900000020', 'hex'), Buffer.alloc(32, at)])
    expect((await order({ add: `ssh-ed25519 ${key.toString('base64')}` })).ok).toBe(true)
  }
  expect(loginKeys(paths)).toHaveLength(16)
  expect(await order({ add: second.publicKey })).toEqual({
    ok: false,
    message: 'add: 16 keys log in already: remove one first',
  })
})
