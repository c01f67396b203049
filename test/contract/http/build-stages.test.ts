// Goal: before its end a build's events say how long each stage took, also over a restart of the daemon.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EventLog, type NewEvent } from '../../../src/builds/events/events.ts'
import type { BuildEvent } from '../../../src/contract/http/build.ts'

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-stages-`))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const event = (data: BuildEvent): NewEvent => ({ data, seq: null })
const step = (type: Exclude<BuildEvent['type'], 'queued' | 'complete'>) => event({ type, msg: 'x' })
const complete = event({ type: 'complete', result: { status: 'ok' } })

/** Messages of the log's last events. */
function lastMessages(path: string, count: number): (string | undefined)[] {
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n')
  return lines.slice(-count).map(line => JSON.parse(line).data.msg)
}

test('goal: the time before an event belongs to its stage; the queue ends with the first event of the VM', () => {
  let nowMs = 1_000_000
  const log = new EventLog(join(dir, 'one'), { bytesMax: 1_000_000, nowMs: () => nowMs })
  const after = (ms: number, ...events: NewEvent[]) => {
    nowMs += ms
    log.append(events)
  }
  after(0, event({ type: 'queued', position: 1 }))
  after(2_000, event({ type: 'queued', position: 0 }))
  after(500, step('vm'))
  after(12_340, step('vm'))
  after(1_000, step('fetch'))
  after(60, step('init'), step('detect'))
  after(700, step('host'))
  after(300, step('fetch'))
  after(20_000, step('build'))
  after(5_000, step('build'), step('provenance'))
  // A clock that is set back takes nothing away.
  after(-9_000, step('attest'))
  after(400, step('host'), complete)
  log.close()
  expect(lastMessages(log.path, 3)).toEqual([
    'Stages: queued 2.5 s, vm 12.3 s, init 0.1 s, detect 0.0 s, fetch 2.0 s, build 25.0 s, provenance 0.0 s, attest 0.0 s, result 0.4 s; 42.3 s in all.',
    'x',
    undefined,
  ])
})

test('goal: a log that another process goes on with has the times of the first one', () => {
  let nowMs = 5_000
  const options = { bytesMax: 1_000_000, nowMs: () => nowMs }
  const first = new EventLog(join(dir, 'two'), options)
  first.append([event({ type: 'queued', position: 0 })])
  nowMs += 1_000
  first.append([step('vm')])
  nowMs += 3_000
  first.append([step('vm'), step('init')])
  first.close()
  const second = new EventLog(join(dir, 'two'), options)
  nowMs += 4_000
  second.append([step('build')])
  nowMs += 100
  second.append([complete])
  second.close()
  expect(lastMessages(second.path, 2)).toEqual([
    'Stages: queued 1.0 s, vm 3.0 s, init 0.0 s, build 4.0 s, result 0.1 s; 8.1 s in all.',
    undefined,
  ])
})

test('goal: a build that ended before its VM reported anything has no stages', () => {
  const log = new EventLog(join(dir, 'three'), { bytesMax: 1_000_000, nowMs: () => 0 })
  log.append([event({ type: 'queued', position: 0 })])
  log.append([step('vm')])
  log.append([complete])
  log.close()
  expect(lastMessages(log.path, 4)).toEqual([undefined, 'x', undefined])
})
