// Goal: QEMU's last output before a VM failed is where an operator looks first: the daemon's log and the instance's
// journal.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readCrashOutput, reportFailures } from '../../src/appliance/crash-output.ts'
import { systemClock } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/log.ts'
import { openStore } from '../../src/store/db.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import type { VmView } from '../../src/vm/engine.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-words-'))
afterAll(() => rmSync(dir, { recursive: true }))

const denied = 'Could not access KVM kernel module: Permission denied\nqemu-system-x86_64: failed to initialize kvm\n'

function fileOf(name: string, content: string): string {
  const path = join(dir, name)
  writeFileSync(path, content)
  return path
}

function bench() {
  const store = openStore(':memory:')
  const lines: Record<string, unknown>[] = []
  const listeners: ((vmId: string) => void)[] = []
  let view: VmView = {
    id: 'vm',
    state: 'booting',
    address: null,
    addressV6: null,
    platform: 'tcg' as const,
    failureCode: null,
    failureMessage: null,
    failedAtMs: null,
    guest: null,
    opened: true,
  }
  let file = join(dir, 'absent')
  reportFailures({
    engine: { onChange: listener => listeners.push(listener), view: () => view },
    ledger: store.ledger.db,
    qemuLog: () => file,
    clock: systemClock,
    log: createLogger({ level: 'info', sink: line => lines.push(JSON.parse(line)), nowMs: () => 0 }),
  })
  const change = (state: VmView['state'], path: string) => {
    view = { ...view, state, failureCode: state === 'failed' ? 'boot_failed' : null }
    file = path
    for (const listener of listeners) listener('vm')
    return { lines: lines.splice(0), events: listEvents(store.ledger.db, { subject: 'vm', limit: 10 }) }
  }
  return { change }
}

test('goal: a failed VM is an error in the log and an event, both with the words', () => {
  const { change } = bench()
  const path = fileOf('denied.log', denied)
  expect(change('booting', path)).toEqual({ lines: [], events: [] })
  const { lines, events } = change('failed', path)
  expect(lines).toMatchObject([{ level: 'error', vm: 'vm', failure_code: 'boot_failed', qemu: denied.trimEnd() }])
  expect(events).toMatchObject([{ kind: 'vm.last_words', subject: 'vm', detail: { qemu: denied.trimEnd() } }])
})

test('goal: a VM that failed before QEMU said anything is an error without words, and no event', () => {
  const { lines, events } = bench().change('failed', join(dir, 'absent'))
  expect(lines).toMatchObject([{ level: 'error', message: 'VM failed' }])
  expect(lines[0]).not.toHaveProperty('qemu')
  expect(events).toEqual([])
})

test('goal: what stands in place of the log is not followed and not waited for, and the failure is reported all the same', () => {
  symlinkSync(fileOf('secret', 'secret'), join(dir, 'link.log'))
  expect(Bun.spawnSync(['mkfifo', join(dir, 'fifo.log')]).exitCode).toBe(0)
  for (const name of ['link.log', 'fifo.log']) {
    const { lines, events } = bench().change('failed', join(dir, name))
    expect([name, lines.map(line => line.level)]).toEqual([name, ['warn', 'error']])
    expect(events).toEqual([])
  }
})

test('goal: words are the last whole lines, bounded, and cannot move a cursor', () => {
  const many = Array.from({ length: 1000 }, (_, index) => `line ${index}\n`).join('')
  const words = readCrashOutput(fileOf('many.log', many))
  expect(words.length).toBeLessThanOrEqual(2_048)
  expect(words).toStartWith('line ')
  expect(words).toEndWith('line 998\nline 999')
  expect(readCrashOutput(fileOf('one.log', 'x'.repeat(10_000)))).toBe('x'.repeat(2_048))
  expect(readCrashOutput(fileOf('odd.log', 'a\u001b]0;owned\u0007\u009b2J'))).toBe('a\\x1b]0;owned\\x07\\x9b2J')
  expect(readCrashOutput(fileOf('bytes.log', ''))).toBe('')
})
