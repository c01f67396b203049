// Goal: a VM answers that its idle time is over after that time without a session, a login or a request, not earlier;
// orders of the owner come before the number of the host.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { createIdle } from '../../../src/guest/orders/idle.ts'
import { guestPaths } from '../../../src/guest/paths.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-idle-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))
const { uid, gid } = userInfo()
const header = '  sl  local_address rem_address   st\n'
const listening = '   0: 0100007F:480A 00000000:0000 0A 0 0 0 900\n'

let paths = guestPaths('')
let files = ''
beforeEach(() => {
  files = mkdtempSync(join(dir, 'root-'))
  paths = { ...guestPaths(files), processes: join(files, 'proc'), logDir: files, ordersDir: join(files, 'orders') }
  mkdirSync(join(files, 'proc/net'), { recursive: true })
  mkdirSync(join(files, 'proc/1'))
  writeFileSync(join(files, 'proc/1/cmdline'), 'sshd: /usr/sbin/sshd -D -e [listener] 0 of 128-256 startups\0')
  table('')
  at(0)
})

const at = (minutes: number) => writeFileSync(join(files, 'proc/uptime'), `${minutes * 60}.25 1.00\n`)
const table = (rows: string) => writeFileSync(join(files, 'proc/net/tcp'), `${header}${listening}${rows}`)
const log = (text: string) => writeFileSync(join(files, 'sshd.log'), text)
const started = () => createIdle({ paths, owner: { uid, gid } })
type Started = ReturnType<typeof started>

/** The host asks each minute, the first time now; the last answer. */
function polled(idle: Started, from: number, to: number, minutes: number | null): boolean {
  let isOver = false
  for (let minute = from; minute <= to; minute += 1) {
    at(minute)
    isOver = idle.isOver(minutes)
  }
  return isOver
}
const order = (idle: Started, kind: 'idle' | 'keep' | 'snapshot_every', minutes: unknown) =>
  idle.handlers[kind]({ minutes }, { counter: 1 })

test('goal: unused for its time, and not a minute less', () => {
  const idle = started()
  expect(polled(idle, 0, 29, 30)).toBe(false)
  expect(polled(idle, 30, 30, 30)).toBe(true)
  expect(idle.isOver(31)).toBe(false)
  // The time begins when there is one.
  expect(polled(idle, 31, 40, null)).toBe(false)
  expect(polled(idle, 41, 69, 30)).toBe(false)
  expect(polled(idle, 70, 70, 30)).toBe(true)
})

test('goal: the wait for a claim, and a time in which no host asked, do not count', () => {
  const idle = started()
  expect(polled(idle, 10_000, 10_029, 30)).toBe(false)
  at(10_060)
  expect(idle.isOver(30)).toBe(false)
  expect(polled(idle, 10_061, 10_090, 30)).toBe(true)
})

const uses: [string, () => void, () => void][] = [
  ['a terminal', () => session('sshd-session: agent@pts/0'), () => session('')],
  ['a session without a terminal', () => session('sshd-session: agent@notty'), () => session('')],
  ['an older sshd', () => session('sshd: agent@pts/0'), () => session('')],
  ['an open request', () => table('   1: 0100007F:480A 0100007F:9999 01 0 0 0 900\n'), () => table('')],
  ['a request that has just ended', () => table('   1: 0100007F:9999 0100007F:480A 06 0 0 0 0\n'), () => table('')],
  [
    'a login between two looks',
    () => log('Accepted publickey for agent from 192.0.2.1 port 7 ssh2: ED25519 SHA256:x\n'),
    () => {},
  ],
]

function session(title: string): void {
  mkdirSync(join(files, 'proc/77'), { recursive: true })
  writeFileSync(join(files, 'proc/77/cmdline'), `${title}\0`)
}

test.each(uses)('goal: %s is use', (_, begin, end) => {
  const idle = started()
  expect(polled(idle, 0, 29, 30)).toBe(false)
  begin()
  expect(polled(idle, 30, 30, 30)).toBe(false)
  end()
  expect(polled(idle, 31, 59, 30)).toBe(false)
  expect(polled(idle, 60, 60, 30)).toBe(true)
})

const noUse: [string, () => void][] = [
  ['somebody who has not logged in', () => session('sshd-session: agent [net]')],
  ['a scan', () => session('sshd-session: [accepted]')],
  ['an attempt that names a login', () => log('Invalid user Accepted publickey for agent from 192.0.2.9 port 3\n')],
  ['another connection', () => table('   1: 0100007F:0016 0200007F:9999 01 0 0 0 0\n')],
  ['a program', () => session('node build.js')],
]

test.each(noUse)('goal: %s is no use', (_, begin) => {
  const idle = started()
  polled(idle, 0, 1, 30)
  begin()
  expect(polled(idle, 2, 30, 30)).toBe(true)
})

test('goal: orders come before the number of the host, and outlive the agent', async () => {
  expect(await order(started(), 'idle', 10)).toEqual({ ok: true, result: { idle: '10', kept_minutes: 0 } })
  let idle = started()
  polled(idle, 0, 10, null)
  expect([idle.isOver(null), idle.isOver(1_000)]).toEqual([true, true])
  expect(await order(idle, 'keep', 20)).toEqual({ ok: true, result: { idle: '10', kept_minutes: 20 } })
  expect(idle.isOver(1)).toBe(false)
  idle = started()
  expect(polled(idle, 11, 29, 1)).toBe(false)
  expect(polled(idle, 30, 31, 1)).toBe(true)
  expect(await order(idle, 'idle', null)).toEqual({ ok: true, result: { idle: 'off', kept_minutes: 0 } })
  expect(polled(started(), 32, 90, 1)).toBe(false)
})

test('goal: other times are refused by name', async () => {
  for (const minutes of [0, -1, 1.5, 525_601, '5', undefined]) {
    expect((await order(started(), 'idle', minutes)).ok).toBe(false)
    expect((await order(started(), 'keep', minutes)).ok).toBe(false)
  }
  const refused = await order(started(), 'keep', null)
  expect(refused.ok ? '' : refused.message).toContain('/minutes')
})

const kept = async () => ({ ok: true })

test('goal: a snapshot is due from the order on, and each time its time is over since the last one began, in all agents of a boot', async () => {
  let idle = started()
  at(100)
  expect(idle.isSnapshotDue()).toBe(false)
  const result = { idle: null, kept_minutes: 0, snapshot_every: 60 }
  expect(await order(idle, 'snapshot_every', 60)).toEqual({ ok: true, result })
  expect(idle.isSnapshotDue()).toBe(true)
  await idle.counted(async () => {
    at(110)
    return await kept()
  })
  for (const [minute, isDue] of [
    [159, false],
    [160, true],
  ] as const) {
    at(minute)
    expect([minute, idle.isSnapshotDue()]).toEqual([minute, isDue])
  }
  // Nothing had changed: that counts like a snapshot.
  expect(await idle.counted(async () => ({ ok: false, code: 'unchanged' }))).toEqual({ ok: false, code: 'unchanged' })
  idle = started()
  at(219)
  expect(idle.isSnapshotDue()).toBe(false)
  at(220)
  expect(idle.isSnapshotDue()).toBe(true)
  expect(await order(idle, 'snapshot_every', null)).toEqual({ ok: true, result: { idle: null, kept_minutes: 0 } })
  expect(idle.isSnapshotDue()).toBe(false)
})

test('goal: a snapshot that fails is due again after 15 minutes, not after the whole time', async () => {
  const idle = started()
  await order(idle, 'snapshot_every', 43_200)
  await idle.counted(async () => ({ ok: false, code: 'failed' }))
  at(14)
  expect(idle.isSnapshotDue()).toBe(false)
  at(15)
  expect(idle.isSnapshotDue()).toBe(true)
  await expect(idle.counted(() => Promise.reject(new Error('broken off')))).rejects.toThrow('broken off')
  at(29)
  expect(idle.isSnapshotDue()).toBe(false)
  at(30)
  expect(idle.isSnapshotDue()).toBe(true)
})

test('goal: a snapshot that the host has not kept is due again after 15 minutes, but not without a schedule', async () => {
  const idle = started()
  await order(idle, 'snapshot_every', 60)
  await idle.counted(kept)
  for (const [minute, isDue] of [
    [14, [false, false]],
    [15, [false, true]],
    [60, [true, true]],
  ] as const) {
    at(minute)
    expect([minute, idle.isSnapshotDue(), idle.isSnapshotDue(true)]).toEqual([minute, ...isDue])
  }
  await order(idle, 'snapshot_every', null)
  expect(idle.isSnapshotDue(true)).toBe(false)
})

test('goal: schedules below 15 minutes and above 30 days are refused', async () => {
  for (const minutes of [0, 14, 15.5, 43_201, '60', undefined])
    expect([minutes, (await order(started(), 'snapshot_every', minutes)).ok]).toEqual([minutes, false])
  expect(started().isSnapshotDue()).toBe(false)
  for (const minutes of [15, 43_200]) expect((await order(started(), 'snapshot_every', minutes)).ok).toBe(true)
})
