// The watch over a program that the agent keeps running: no polling while it runs, a restart when it ends.

import { expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { until } from '../../scripts/rigs/until.ts'
import { systemClock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { createDaemon, type Daemon } from '../../src/guest/daemon.ts'
import { logBytesMax } from '../../src/guest/log-file.ts'
import { identifyProcess } from '../../src/guest/process-identity.ts'

const waitMs = 30_000
/** Longer sleeps are held until the test releases them. */
const shortMs = 500

type Bench = AsyncDisposable & {
  readonly daemon: Daemon
  readonly record: string
  readonly log: string
  readonly pid: () => number
  /** Durations of the sleeps that are held. */
  readonly held: () => readonly number[]
  /** Ends the sleeps that are held. */
  readonly release: () => void
}

/** A daemon whose program only waits. */
function makeBench(): Bench {
  const dir = fs.mkdtempSync(join(tmpdir(), 'guest-daemon-'))
  const { uid, gid } = userInfo()
  const sleeps = new Map<() => void, number>()
  const clock = {
    ...systemClock,
    sleep: (ms: number, signal?: AbortSignal) => {
      if (ms < shortMs) return systemClock.sleep(ms, signal)
      return new Promise<void>((resolve, reject) => {
        const end = () => {
          sleeps.delete(end)
          if (signal?.aborted) reject(signal.reason)
          else resolve()
        }
        sleeps.set(end, ms)
        if (signal?.aborted) end()
        else signal?.addEventListener('abort', end, { once: true })
      })
    },
  }
  const record = join(dir, 'waiting')
  const daemon = createDaemon({
    ...{ name: 'waiting', record, logDir: join(dir, 'log'), runDir: null, owner: { uid, gid } },
    ...{ argv: ['sleep', '1000'], clock, log: silentLogger },
  })
  return {
    record,
    log: join(dir, 'log/waiting.log'),
    pid: () => JSON.parse(fs.readFileSync(record, 'utf8')).pid,
    held: () => [...sleeps.values()],
    release: () => {
      for (const end of [...sleeps.keys()]) end()
    },
    daemon,
    [Symbol.asyncDispose]: async () => {
      await daemon.stop()
      fs.rmSync(dir, { recursive: true })
    },
  }
}

// Goal: a running child costs one wait of seconds at a time; its end interrupts the wait and starts it again; `stop`
// ends it for good.
test('a child that ends is restarted without a poll', async () => {
  await using bench = makeBench()
  const { daemon } = bench
  daemon.start()
  expect(bench.held()).toEqual([5_000])
  const first = bench.pid()
  process.kill(first, 'SIGKILL')
  await until('it runs again', waitMs, () => bench.pid() !== first && bench.held().length === 1)
  const second = bench.pid()
  await daemon.stop()
  await until('nothing waits', waitMs, () => bench.held().length === 0)
  expect(() => process.kill(second, 0)).toThrow('ESRCH')
})

// Goal: a start beside a running program changes nothing; one of an ended program starts it at once, and the earlier
// watch ends.
test('a second start makes no second program', async () => {
  await using bench = makeBench()
  bench.daemon.start()
  const first = bench.pid()
  bench.daemon.start()
  expect([bench.pid(), bench.held()]).toEqual([first, [5_000]])
  process.kill(first, 'SIGKILL')
  await until('it has ended', waitMs, () => identifyProcess(first) === null)
  bench.daemon.start()
  const second = bench.pid()
  expect(second).not.toBe(first)
  await until('one watch is left', waitMs, () => bench.held().length === 1)
  expect(bench.pid()).toBe(second)
})

// Goal: a log that has grown over its limit is emptied at the next look, and the program goes on.
test('its log stays bounded', async () => {
  await using bench = makeBench()
  bench.daemon.start()
  const pid = bench.pid()
  fs.appendFileSync(bench.log, Buffer.alloc(logBytesMax + 1))
  bench.release()
  await until('the log is empty', waitMs, () => fs.statSync(bench.log).size === 0)
  await until('the next look is due', waitMs, () => bench.held().length === 1)
  expect(bench.pid()).toBe(pid)
})

// Goal: a process of an earlier agent is taken over; no event shows its end, so a poll does, and it is restarted.
test('a process of an earlier agent that ends is restarted', async () => {
  await using bench = makeBench()
  await using earlier = Bun.spawn(['sleep', '1000'])
  fs.writeFileSync(bench.record, JSON.stringify(identifyProcess(earlier.pid)))
  bench.daemon.start()
  expect([bench.pid(), bench.held()]).toEqual([earlier.pid, [1_000]])
  earlier.kill('SIGKILL')
  await earlier.exited
  bench.release()
  await until('it runs again', waitMs, () => bench.pid() !== earlier.pid && bench.held().length === 1)
  expect(bench.held()).toEqual([5_000])
})
