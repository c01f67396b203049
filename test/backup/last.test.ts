// Goal: the host says honestly whether its last backup is enough: what it does not know is no alarm and no comfort.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import { backupsOf } from '../../src/backup/last.plan.ts'
import { noteFailed, noteMade, readBackups, recordName, unitFailureName } from '../../src/backup/last.ts'
import { iso } from '../../src/base/clock.ts'
import { AdminBackups } from '../../src/contract/admin/backups.ts'

const hourMs = 3_600_000
const nowMs = Date.parse('2026-11-26T12:00:00.000Z')
const madeAgo = (hours: number) => ({ at: iso(nowMs - hours * hourMs), file: '/b.age', bytes: 7 })
const failure = { at: iso(nowMs - hourMs), message: 'no space' }

// Goal: a problem and its remedy where the last backup is not enough, and neither where nothing says so.
test.each([
  ['nothing is known', {}, 'none', null],
  ['the timer is new', { nightlySinceMs: nowMs - 49 * hourMs }, 'none', null],
  ['the timer makes none', { nightlySinceMs: nowMs - 51 * hourMs }, 'old', '; no backup of this host is known'],
  ['of last night', { last: madeAgo(20), nightlySinceMs: 0 }, 'good', null],
  ['two nights left out', { last: madeAgo(51), nightlySinceMs: 0 }, 'old', 'the last good one is of 2026-11-24'],
  ['by hand, days ago', { last: madeAgo(7 * 24) }, 'good', null],
  ['by hand, long ago', { last: madeAgo(9 * 24) }, 'old', 'the last good one is of 2026-11-17'],
  [
    'the newest failed',
    { last: madeAgo(20), failure, nightlySinceMs: 0 },
    'failed',
    'the backup of 2026-11-26T11:00:00.000Z failed (the last good one is of 2026-11-25T16:00:00.000Z): no space',
  ],
  ['the first failed', { failure }, 'failed', 'failed (no backup of this host is known): no space'],
] as const)('%s', (_name, facts, state, problem) => {
  const found = backupsOf({ last: null, failure: null, nightlySinceMs: null, nowMs, ...facts })
  expect([...Value.Errors(AdminBackups, found)]).toEqual([])
  expect(found.state).toBe(state)
  if (problem === null) expect([found.problem, found.remedy]).toEqual([null, null])
  else expect(found).toMatchObject({ problem: expect.stringContaining(problem), remedy: expect.any(String) })
})

test('goal: a command of the operator that failed has a remedy of its own, with a backup that needs no command', () => {
  const remedyOf = (message: string, nightlySinceMs: number | null) =>
    backupsOf({ last: null, failure: { ...failure, message }, nightlySinceMs, nowMs }).remedy ?? ''
  const printed = 'the command of the backup failed: exit code 1: store: 403 Forbidden'
  expect(remedyOf(printed, 0)).toContain('/etc/strongroom/backup.env), then `systemctl start strongroom-backup`')
  expect(remedyOf(printed, 0)).toEndWith(
    '`strongroom backup --recipients-file /etc/strongroom/backup-recipients.txt FILE`; copy FILE to another machine',
  )
  expect(remedyOf('the command of the backup did not end within 3600 s', 0)).toBe(remedyOf(printed, 0))
  expect(remedyOf(printed, null)).toEndWith('`strongroom backup --recipient age1… FILE`; copy FILE to another machine')
  expect(remedyOf(printed, null)).not.toMatch(/systemctl|backup-recipients/)
  for (const since of [0, null]) expect(remedyOf('no space', since)).not.toContain('backup.env')
})

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-last-backup-'))
  mkdirSync(join(dir, 'state'))
})
afterEach(() => rmSync(dir, { recursive: true }))

test('goal: the timer counts where it is enabled, has recipients, and is about this state directory', () => {
  const timer = { enabled: join(dir, 'timer'), recipients: join(dir, 'recipients'), stateDir: join(dir, 'state') }
  const nightly = (stateDir = timer.stateDir) => readBackups(stateDir, nowMs, timer).nightly
  expect(nightly()).toBe(false)
  writeFileSync(timer.recipients, '')
  expect(nightly()).toBe(false)
  writeFileSync(timer.enabled, '')
  expect(nightly()).toBe(true)
  expect(nightly(join(dir, 'other'))).toBe(false)
  utimesSync(timer.recipients, 0, 0)
  expect(readBackups(timer.stateDir, nowMs, timer).state).toBe('old')
})

test('goal: a record that is damaged, huge or cannot be written is no failure of status or backup', () => {
  const stateDir = join(dir, 'state')
  for (const text of ['', '{"format":2}', `"${'x'.repeat(20_000)}"`]) {
    writeFileSync(join(stateDir, recordName), text)
    expect(readBackups(stateDir, nowMs)).toMatchObject({ state: 'none', last: null })
  }
  expect(noteMade(stateDir, madeAgo(1))).toBe(true)
  expect(noteFailed(stateDir, { error: new Error('y'.repeat(9_000)), nowMs })).toBe(true)
  expect(readBackups(stateDir, nowMs)).toMatchObject({ state: 'failed', last: madeAgo(1) })
  mkdirSync(join(dir, 'taken', recordName), { recursive: true })
  expect(noteMade(join(dir, 'taken'), madeAgo(1))).toBe(false)
  expect(noteMade(join(dir, 'nowhere'), madeAgo(1))).toBe(false)
})

test('goal: the unit that failed before its command is a failure, until the next backup, and not in place of better words', () => {
  const stateDir = join(dir, 'state')
  const mark = join(stateDir, unitFailureName)
  const failedAgo = (hours: number, text: string) => {
    writeFileSync(mark, text)
    const at = (nowMs - hours * hourMs) / 1000
    utimesSync(mark, at, at)
  }
  noteMade(stateDir, madeAgo(5))
  failedAgo(6, 'exit-code exited 226')
  expect(readBackups(stateDir, nowMs)).toMatchObject({ state: 'good', failure: null })
  failedAgo(4, 'exit-code exited 226')
  expect(readBackups(stateDir, nowMs)).toMatchObject({
    state: 'failed',
    last: madeAgo(5),
    failure: {
      at: iso(nowMs - 4 * hourMs),
      message: 'strongroom-backup.service failed and made no backup: exit-code exited 226',
    },
  })
  // The command itself recorded why, just before the unit ended.
  noteFailed(stateDir, { error: new Error('no such bucket'), nowMs: nowMs - 4 * hourMs - 2_000 })
  expect(readBackups(stateDir, nowMs).failure?.message).toBe('no such bucket')
  failedAgo(3, '')
  expect(readBackups(stateDir, nowMs).failure?.message).toContain('unknown reason')
  failedAgo(3, `\u001b[2J<b>${'x'.repeat(10)}`)
  expect(readBackups(stateDir, nowMs).failure?.message).toEndWith('no backup: 2Jbxxxxxxxxxx')
  failedAgo(3, 'x'.repeat(201))
  expect(readBackups(stateDir, nowMs).failure?.message).toContain('unknown reason')
})
