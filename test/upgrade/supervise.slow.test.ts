// Goal: the steps come in their order, and a step that fails leads to what the table says, whatever the host answers.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { waitingHostCommands } from '../../src/host/host-commands.ts'
import { lockFile } from '../../src/linux/lock.ts'
import { openStore } from '../../src/store/db.ts'
import { insertOrganization, listOrganizations } from '../../src/store/directory/organization.query.ts'
import { progressFrom, readEnd, readRecord, upgradePaths, writeRecord } from '../../src/upgrade/record.ts'
import { type ServiceState, supervise, type UpgradeHost } from '../../src/upgrade/supervise.ts'
import type { Phase } from '../../src/upgrade/upgrade.machine.ts'
import { sampleRecord } from '../rigs/upgrade/record.ts'

let dir: string
let calls: string[]
const paths = () => upgradePaths(join(dir, 'state'))
const database = () => join(dir, 'state/strongroom.db')
const dropIn = () => join(dir, 'strongroom.service.d/zz-upgrade.conf')
const running: ServiceState = { pid: 7, isRunning: true, restarts: 0 }

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-supervise-'))
  calls = []
  mkdirSync(paths().directory, { recursive: true })
  add('before')
})

afterEach(() => rmSync(dir, { recursive: true }))

function add(slug: string): void {
  const store = openStore(database())
  insertOrganization(store.directory.db, { id: slug, slug, nowMs: 1 })
  store.close()
}

function slugs(): string[] {
  const store = openStore(database())
  const found = listOrganizations(store.directory.db).map(({ slug }) => slug)
  store.close()
  return found.toSorted()
}

/** Commands that wait for the daemon's record. */
function noted() {
  return waitingHostCommands(join(dir, 'state')).map(({ command }) => [command?.operation, command?.result])
}

/** Goes on from `phase`; `asked`: somebody waits for it. */
async function run(phase: Phase, changes: Partial<UpgradeHost> = {}, asked = true) {
  writeRecord(paths(), sampleRecord(join(dir, 'state'), { phase, serve: ['serve', '--config', '/a b/%n "c".toml'] }))
  using _ = asked ? lockFile(paths().askerLock) : null
  const note = async (call: string) => void calls.push(call)
  const host: UpgradeHost = {
    stop: () => note('stop'),
    start: () => note(existsSync(dropIn()) ? 'start on trial' : 'start'),
    reload: () => note('reload'),
    service: async () => running,
    status: async () => ({ pid: 7 }),
    doctor: async () => [],
    install: () => note('install'),
    openRouting: () => note('open routing'),
    disarm: () => note('disarm'),
    ...changes,
  }
  const clock = createManualClock()
  return supervise({
    paths: paths(),
    dropIn: dropIn(),
    host,
    clock: { ...clock, sleep: async ms => clock.advance(ms) },
    say: () => {},
  })
}

test('goal: one that passes: trial, acceptance on the disk, then the place of the executable', async () => {
  let atInstall = ''
  const end = await run('prepared', {
    install: async () => {
      calls.push('install')
      atInstall = `${readRecord(paths())?.phase}\n${readFileSync(dropIn(), 'utf8')}`
    },
  })
  expect(end).toMatchObject({ outcome: 'upgraded', reason: null })
  expect(calls).toEqual(['stop', 'reload', 'start on trial', 'install', 'reload', 'stop', 'start', 'disarm'])
  expect(atInstall).toBe(
    `accepted\n[Service]\nExecStart=\nExecStart="${paths().candidate}" "serve" "--config" "/a b/%%n \\"c\\".toml" "--trial"\n`,
  )
  expect([existsSync(dropIn()), readRecord(paths()), slugs()]).toEqual([false, null, ['before']])
  expect(noted()).toEqual([['upgrade', 'ok']])
})

async function refusal(work: Promise<unknown>): Promise<Error> {
  const ended = await work.catch((error: Error) => error)
  if (ended instanceof Error) return ended
  throw new Error('it did not fail')
}

const FAILURES: [string, Partial<UpgradeHost>, string][] = [
  ['it ended', { service: async () => ({ ...running, isRunning: false }) }, 'ended at its start'],
  ['it was started again', { service: async () => ({ ...running, restarts: 1 }) }, 'ended at its start'],
  ['another daemon answers', { status: async () => ({ pid: 8 }) }, 'did not answer within 1 s'],
  ['none answers', { status: async () => null }, 'did not answer within 1 s'],
  ['the canary fails', { doctor: async () => ['canary: silent'] }, 'canary: silent'],
]

test.each(FAILURES)(
  'goal: %s: the former database comes back, then the former executable',
  async (_, changes, reason) => {
    let isBack = false
    const good = { service: async () => running, status: async () => ({ pid: 7 }), doctor: async () => [] }
    const changing = Object.fromEntries(
      Object.entries(changes).map(([name, change]) => [
        name,
        (...words: never[]) =>
          ((isBack ? Reflect.get(good, name) : change) as (...given: never[]) => unknown)(...words),
      ]),
    )
    const end = await run('prepared', {
      ...changing,
      start: async () => {
        calls.push(existsSync(dropIn()) ? 'start on trial' : 'start')
        // As a migration would, or a sample of egress.
        if (existsSync(dropIn())) add('on-trial')
        else isBack = true
      },
    })
    expect(end).toMatchObject({ outcome: 'returned', reason: expect.stringContaining(reason) as unknown })
    expect(calls).toEqual([
      'stop',
      'reload',
      'start on trial',
      'stop',
      'open routing',
      'stop',
      'reload',
      'start',
      'disarm',
    ])
    expect([existsSync(dropIn()), slugs()]).toEqual([false, ['before']])
    expect(noted()).toEqual([['upgrade', 'returned']])
  },
)

test('goal: interrupted, each phase ends as the table says, and asks nobody twice', async () => {
  expect(await run('prepared', {}, false)).toMatchObject({ outcome: 'abandoned' })
  expect(calls).toEqual(['disarm'])
  calls = []
  expect(await run('switching')).toMatchObject({ outcome: 'returned' })
  expect(calls).toEqual(['reload', 'start', 'disarm'])
  calls = []
  expect(await run('accepted')).toMatchObject({ outcome: 'upgraded', reason: null })
  expect(calls).toEqual(['install', 'reload', 'stop', 'start', 'disarm'])
})

test('goal: a database that serves again is never put back a second time', async () => {
  add('since')
  writeFileSync(paths().database, 'the copy, which must not be read any more')
  expect(await run('returned')).toMatchObject({ outcome: 'returned' })
  expect(slugs()).toEqual(['before', 'since'])
})

test('goal: what was accepted is tried again until it is in its place, and the reason is told', async () => {
  const fault = await refusal(run('accepted', { install: () => Promise.reject(new Error('dpkg: no space')) }))
  expect(fault.message).toContain('no space')
  expect([readRecord(paths())?.phase, readEnd(paths())]).toEqual(['accepted', null])
  expect(progressFrom(paths(), 0).filter(({ isRetried }) => isRetried)).toMatchObject([
    { text: expect.stringContaining('no space') as unknown },
  ])
  expect(await run('accepted')).toMatchObject({ outcome: 'upgraded' })
})

test('goal: cut off before the switch was on the disk, the former database stays: it may have served since', async () => {
  writeFileSync(paths().database, readFileSync(database()))
  add('since')
  expect(await run('trial')).toMatchObject({ outcome: 'returned' })
  expect(slugs()).toEqual(['before', 'since'])
})

test('goal: a boot before the switch was undone: what the new executable has migrated again goes back again', async () => {
  writeFileSync(paths().database, readFileSync(database()))
  mkdirSync(dirname(dropIn()))
  writeFileSync(dropIn(), '')
  add('on-trial')
  expect(await run('returned')).toMatchObject({ outcome: 'returned' })
  expect([existsSync(dropIn()), slugs()]).toEqual([false, ['before']])
})

test('goal: a damaged copy is not put in the place of a database', async () => {
  writeFileSync(paths().database, 'no database')
  mkdirSync(dirname(dropIn()))
  writeFileSync(dropIn(), '')
  expect(await refusal(run('returning'))).toMatchObject({ code: 'store.corrupt' })
  expect(slugs()).toEqual(['before'])
})

test('goal: one process at a time does the work', async () => {
  using _ = lockFile(paths().lock)
  expect(await refusal(run('prepared'))).toMatchObject({ code: 'conflict' })
})
