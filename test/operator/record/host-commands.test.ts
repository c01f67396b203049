// Goal: a command that ran beside the daemon is in the record of commands exactly once, by whom and with what result,
// and never on trial, when the record may go.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Static } from '@sinclair/typebox'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { AdminCommandList } from '../../../src/contract/admin/events.ts'
import { hostCommandsDir, noteHostCommand } from '../../../src/host/host-commands.ts'
import { createAdmin } from '../../../src/operator/api.ts'
import type { AdminDeps } from '../../../src/operator/deps.ts'
import { takeHostCommands } from '../../../src/operator/record/host-commands.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { asRoot, NO_ADMINISTRATORS } from '../../rigs/admin.ts'

const clock = createManualClock(Date.parse('2026-11-30T12:00:00Z'))
const at = (text: string) => Date.parse(`2026-11-30T${text}Z`)

let stateDir: string
let store: Store
beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'strongroom-host-commands-'))
  store = openStore(join(stateDir, 'strongroom.db'))
})
afterEach(() => {
  store.close()
  rmSync(stateDir, { recursive: true })
})

const gate = { isOpen: true }
const take = () => takeHostCommands({ stateDir, ledger: store.ledger, log: silentLogger, mayWrite: () => gate.isOpen })
const waiting = () => readdirSync(join(stateDir, hostCommandsDir)).toSorted()

/** The record as a daemon that starts now shows it. */
async function commands() {
  const { random } = { random: systemRandom }
  const deps = { ...NO_ADMINISTRATORS, store, clock, log: silentLogger, random, gateway: 'off', collectors: [] }
  const admin = asRoot(createAdmin({ ...deps, takeHostCommands: take } as unknown as AdminDeps))
  const list = (await (await admin(new Request('http://admin/events?limit=50'))).json()) as Static<
    typeof AdminCommandList
  >
  return list.commands.map(({ at, actor, operation, arguments: given, result, ended_at: ended }) => {
    expect(ended).toBe(at)
    return [at.slice(11, 16), actor, operation, given, result]
  })
}

test('goal: what ran while the daemon was down or up is in the record, in the order of its times', async () => {
  const actor = process.getuid?.() === 0 ? 'root' : `uid ${process.getuid?.()}`
  noteHostCommand(stateDir, { operation: 'upgrade', arguments: { to: '2' }, result: 'returned' }, at('03:00'))
  noteHostCommand(stateDir, { operation: 'backup', arguments: { file: '/b' }, result: 'ok' }, at('02:00'))
  const first = [
    ['02:00', actor, 'backup', { file: '/b' }, 'ok'],
    ['03:00', actor, 'upgrade', { to: '2' }, 'returned'],
  ]
  expect(await commands()).toEqual(first)
  expect(waiting()).toEqual([])
  noteHostCommand(stateDir, { operation: 'backup', arguments: {}, result: 'host.disk_full' }, at('04:00'))
  expect(await commands()).toEqual([...first, ['04:00', actor, 'backup', {}, 'host.disk_full']])
})

test('goal: a daemon that was killed between the record and the removal of the file records it once', async () => {
  noteHostCommand(stateDir, { operation: 'restore', arguments: {}, result: 'ok' }, at('02:00'))
  const [name = ''] = waiting()
  const kept = join(stateDir, 'kept')
  copyFileSync(join(stateDir, hostCommandsDir, name), kept)
  take()
  copyFileSync(kept, join(stateDir, hostCommandsDir, name))
  expect((await commands()).length).toBe(1)
  expect(waiting()).toEqual([])
})

test('goal: on trial nothing is taken, so that nothing is lost when the former database comes back', async () => {
  noteHostCommand(stateDir, { operation: 'upgrade', arguments: {}, result: 'ok' }, at('02:00'))
  gate.isOpen = false
  expect([(await commands()).length, waiting().length]).toEqual([0, 1])
  gate.isOpen = true
  expect([(await commands()).length, waiting().length]).toEqual([1, 0])
})

test('goal: a file that holds no command is removed and hides none, files of others stay, and a host without records gets none', async () => {
  noteHostCommand(stateDir, { operation: 'backup', arguments: {}, result: 'ok' }, at('05:00'))
  const bad = (digits: string) => join(stateDir, hostCommandsDir, `${digits.padStart(15, '0')}-${'a'.repeat(36)}.json`)
  writeFileSync(bad('1'), '{"operation":"backup"}')
  writeFileSync(bad('2'), 'x'.repeat(9_000))
  writeFileSync(join(stateDir, hostCommandsDir, 'note.txt'), 'mine')
  expect((await commands()).map(([, , operation]) => operation)).toEqual(['backup'])
  expect(waiting()).toEqual(['note.txt'])
  const empty = join(stateDir, 'empty')
  mkdirSync(empty)
  expect(noteHostCommand(empty, { operation: 'backup', arguments: {}, result: 'ok' }, 1)).toBe(false)
  expect(readdirSync(empty)).toEqual([])
  const long = { operation: 'backup', arguments: { file: 'x'.repeat(9_000) }, result: 'ok' }
  expect(noteHostCommand(stateDir, long, 1)).toBe(false)
})
