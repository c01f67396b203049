// Goal: what doctor says of a device is what QEMU will meet: the open is tried with the identity that VMs get, not with doctor's own.

import { afterAll, expect, test } from 'bun:test'
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lookAtDevice } from '../../../src/cli/operator/vm-identity.driver.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-identity-'))
chmodSync(dir, 0o755)
afterAll(() => rmSync(dir, { recursive: true }))

/** Every Debian has this user, with a group of its name. */
const user = 'daemon'

function deviceOf(name: string, mode: number, gid: number): string {
  const path = join(dir, name)
  writeFileSync(path, '')
  chownSync(path, 0, gid)
  chmodSync(path, mode)
  return path
}

test('goal: root alone may open it: refused, with its group and mode', async () => {
  const facts = await lookAtDevice(deviceOf('root-only', 0o600, 0), user)
  expect(facts).toEqual({ outcome: { ok: false, text: 'Permission denied' }, group: 'root', mode: 0o600 })
})

test('goal: its group may open it', async () => {
  const facts = await lookAtDevice(deviceOf('by-group', 0o660, 1), user)
  expect(facts).toEqual({ outcome: { ok: true, text: 'opened' }, group: 'daemon', mode: 0o660 })
})

test('goal: reading alone is not enough: QEMU opens for reading and writing', async () => {
  const facts = await lookAtDevice(deviceOf('read-only', 0o644, 0), user)
  expect(facts?.outcome).toEqual({ ok: false, text: 'Permission denied' })
})

test('goal: a user that does not exist is said, and nothing is made where there is no device', async () => {
  const facts = await lookAtDevice(deviceOf('there', 0o666, 0), 'nobody-of-this-name')
  expect(facts?.outcome).toMatchObject({ ok: false, text: expect.stringContaining('nobody-of-this-name') })
  expect(await lookAtDevice(join(dir, 'absent'), user)).toBeNull()
  expect(await Bun.file(join(dir, 'absent')).exists()).toBe(false)
})
