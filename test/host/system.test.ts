// The daemon's view of the machine it runs on.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { chmodSync, chownSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  checkUidRange,
  enableForwardingV6,
  groupsOfDevices,
  hostBootId,
  isHostStopping,
  lockHolderId,
} from '../../src/host/system.ts'
import { lockFile } from '../../src/linux/lock.ts'

let root = ''
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), 'system-test-'))
  mkdirSync(join(root, 'etc'))
  mkdirSync(join(root, 'dev'))
  writeFileSync(
    join(root, 'etc/passwd'),
    'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/x\nworker:x:70500:1::/:/x\n',
  )
  writeFileSync(join(root, 'etc/subuid'), 'podman:100000:65536\n')
})
afterAll(() => rmSync(root, { recursive: true }))

test('goal: a range of uids is nobody else’s: no user’s, not the worker’s, no container’s', () => {
  expect(checkUidRange({ min: 71_000, max: 99_999 }, { root })).toEqual({ min: 71_000, max: 99_999 })
  for (const [range, whose] of [
    [{ min: 70_000, max: 79_999 }, 'user worker (70500'],
    [{ min: 60_000, max: 65_534 }, 'user nobody'],
    [{ min: 99_000, max: 100_000 }, '/etc/subuid of podman (100000 to 165535)'],
    [{ min: 120_000, max: 120_001 }, '/etc/subuid of podman'],
  ] as const)
    expect(() => checkUidRange(range, { root })).toThrow(whose)
  // A host without the files has no such users.
  expect(checkUidRange({ min: 1, max: 2 }, { root: join(root, 'dev') })).toEqual({ min: 1, max: 2 })
})

test('goal: who holds a lock next has the same id; a copy of the directory has another, which does not show the boot', () => {
  const path = join(root, 'state')
  mkdirSync(path)
  const ids = [1, 2].map(() => {
    using _ = lockFile(join(path, 'lock'))
    return lockHolderId(join(path, 'lock'))
  })
  expect(ids).toEqual([expect.stringMatching(/^[0-9a-f]{64}$/), ids[0] ?? ''])
  const copy = join(root, 'copy')
  cpSync(path, copy, { recursive: true, preserveTimestamps: true })
  expect(lockHolderId(join(copy, 'lock'))).not.toBe(ids[0] ?? '')
  expect(ids[0]).not.toContain(hostBootId().slice(0, 8))
})

test('goal: QEMU gets the groups of its devices and no other; a device that no group may open says what to do', () => {
  const put = (name: string, mode: number, gid: number | null) => {
    const path = join(root, 'dev', name)
    writeFileSync(path, '')
    if (gid !== null) chownSync(path, -1, gid)
    chmodSync(path, mode)
  }
  expect(groupsOfDevices('tcg', { root })).toEqual([])
  expect(() => groupsOfDevices('kvm', { root })).toThrow('look at')
  put('kvm', 0o666, null)
  expect(groupsOfDevices('kvm', { root })).toEqual([])
  put('kvm', 0o600, null)
  expect(() => groupsOfDevices('kvm', { root })).toThrow('/etc/udev/rules.d/60-strongroom-kvm.rules')
  const isRoot = process.getuid?.() === 0
  const gid = isRoot ? 105 : (process.getgid?.() ?? 0)
  put('kvm', 0o660, isRoot ? gid : null)
  expect(groupsOfDevices('kvm', { root })).toEqual([gid])
  expect(() => groupsOfDevices('snp', { root })).toThrow('dev/sev')
  put('sev', 0o660, isRoot ? gid : null)
  expect(groupsOfDevices('snp', { root })).toEqual([gid])
  if (!isRoot) {
    process.stderr.write('not run: a device of group root needs root\n')
    return
  }
  put('sev', 0o660, 0)
  // Group root would open far more than the device.
  expect(() => groupsOfDevices('snp', { root })).toThrow('GROUP="kvm"')
})

test('a host is stopping when systemd says so, and not when it says anything else or nothing', async () => {
  // Goal: systemctl fails for most states, so its word counts; without an answer it is no shutdown.
  const saying = (text: string, exitCode: number) => ['sh', '-c', `echo ${text}; exit ${exitCode}`]
  expect(await isHostStopping(saying('stopping', 1))).toBe(true)
  expect(await isHostStopping(saying('running', 0))).toBe(false)
  expect(await isHostStopping(saying('degraded', 1))).toBe(false)
  expect(await isHostStopping(saying('offline', 1))).toBe(false)
  expect(await isHostStopping(['/nowhere/systemctl'])).toBe(false)
})

test('goal: this host forwards IPv6 and still takes its own routes from routers, where it did so', () => {
  const directory = mkdtempSync(join(tmpdir(), 'srt-conf-'))
  const write = (name: string, forwarding: string, acceptRa: string) => {
    mkdirSync(join(directory, name))
    writeFileSync(join(directory, name, 'forwarding'), `${forwarding}\n`)
    writeFileSync(join(directory, name, 'accept_ra'), `${acceptRa}\n`)
  }
  const read = (path: string) => readFileSync(join(directory, path), 'utf8').trim()
  for (const name of ['all', 'default', 'uplink']) write(name, '0', '1')
  write('fixed', '0', '0')
  write('router', '1', '1')
  enableForwardingV6(() => {}, directory)
  expect(read('all/forwarding')).toBe('1')
  const names = ['uplink', 'fixed', 'router', 'default', 'all']
  expect(names.map(name => read(`${name}/accept_ra`))).toEqual(['2', '0', '1', '1', '1'])
  // Where it forwards already, nothing is touched.
  writeFileSync(join(directory, 'uplink/accept_ra'), '1')
  enableForwardingV6(() => {}, directory)
  expect(read('uplink/accept_ra')).toBe('1')
  rmSync(directory, { recursive: true })
  expect(() => enableForwardingV6(() => {}, directory)).toThrow('network.pool_v6')
})
