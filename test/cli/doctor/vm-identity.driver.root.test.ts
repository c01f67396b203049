// Goal: what doctor says of a device is what QEMU will meet: the open is tried with the identity that VMs get, not
// with doctor's own.

import { afterAll, expect, test } from 'bun:test'
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { collectDeviceFacts } from '../../../src/cli/doctor/vm-identity.driver.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-identity-'))
chmodSync(dir, 0o755)
afterAll(() => rmSync(dir, { recursive: true }))

const vm = {
  uid: 70_000,
  groups: [],
  platform: 'kvm',
  vcpus: 1,
  memoryMib: 64,
  diskGib: 0,
  devices: 0,
  systemd: true,
} as const

function deviceOf(name: string, mode: number, gid: number): string {
  const path = join(dir, name)
  writeFileSync(path, '')
  chownSync(path, 0, gid)
  chmodSync(path, mode)
  return path
}

test('goal: root alone may open it: refused, with its group and mode', async () => {
  const facts = await collectDeviceFacts(deviceOf('root-only', 0o600, 0), vm)
  expect(facts).toEqual({ outcome: { ok: false, text: 'Permission denied' }, group: 'root', mode: 0o600 })
})

test('goal: its group may open it', async () => {
  const facts = await collectDeviceFacts(deviceOf('by-group', 0o660, 1), { ...vm, groups: [1] })
  expect(facts).toEqual({ outcome: { ok: true, text: 'opened' }, group: 'daemon', mode: 0o660 })
})

test('goal: reading alone is not enough: QEMU opens for reading and writing', async () => {
  const facts = await collectDeviceFacts(deviceOf('read-only', 0o644, 0), vm)
  expect(facts?.outcome).toEqual({ ok: false, text: 'Permission denied' })
})

test('goal: another group does not help, and nothing is made where there is no device', async () => {
  const facts = await collectDeviceFacts(deviceOf('other-group', 0o660, 1), { ...vm, groups: [2] })
  expect(facts?.outcome).toEqual({ ok: false, text: 'Permission denied' })
  expect(await collectDeviceFacts(join(dir, 'absent'), vm)).toBeNull()
  expect(await Bun.file(join(dir, 'absent')).exists()).toBe(false)
})
