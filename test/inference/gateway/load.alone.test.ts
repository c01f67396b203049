// Many concurrent streams through the gateway; upstream, gateway and clients are processes on the loopback interface.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { needsHost } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { EVENTS, STREAMS } from '../../rigs/gateway/load-plan.ts'

const MIB = 1024 * 1024
const testMs = 300_000
const program = join(import.meta.dir, '../../rigs/gateway/load-program.ts')

type Line = Readonly<Record<string, unknown>>

/** One of the programs; `line` gives what it prints, one after the other. */
function start(...argv: string[]) {
  const child = Bun.spawn([process.execPath, program, ...argv], {
    // For its clients: Bun's fetch runs 256 requests at a time unless this variable is set at the program's start.
    env: { ...process.env, BUN_CONFIG_MAX_HTTP_REQUESTS: '65336' },
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const lines: Line[] = []
  let taken = 0
  const read = async () => {
    let tail = ''
    for await (const chunk of child.stdout) {
      const parts = (tail + Buffer.from(chunk).toString()).split('\n')
      tail = parts.pop() ?? ''
      lines.push(...parts.map(part => JSON.parse(part) as Line))
    }
  }
  void read()
  return {
    child,
    line: async (what: string, timeoutMs: number): Promise<Line> => {
      await until(what, timeoutMs, () => lines.length > taken)
      taken += 1
      return lines[taken - 1] ?? {}
    },
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}

/** Most memory that the process ever had, and what it has: proc_pid_status(5). */
function memoryBytes(pid: number): { most: number; now: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const of = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024
  return { most: of('VmHWM'), now: of('VmRSS') }
}

const inTheClear = needsHost('a gateway in a VM is served over HTTPS alone')
const goal = 'goal: of 2,000 paced streams each gets every event in time, and a reader that stalls holds back nobody'
// Goal: the upstream has all 2,000 at once, and the one that stalls costs no memory.
test.skipIf(inTheClear)(`${goal}: http`, () => judge('http'), testMs)
// Goal: the same over TLS, as the appliance serves it.
test(`${goal}: https`, () => judge('https'), testMs)

async function judge(protocol: string): Promise<void> {
  await using upstream = start('upstream')
  const { url } = await upstream.line('the upstream', 60_000)
  await using gateway = start('gateway', String(url), protocol)
  const ready = await gateway.line('the gateway', 60_000)
  const [gatewayUrl, key, ca] = [String(ready.url), String(ready.key), String(ready.ca)]
  expect(gatewayUrl).toStartWith(`${protocol}:`)
  const gatewayPid = Number(ready.pid)
  const before = memoryBytes(gatewayPid)

  await using stalled = start('stalled', gatewayUrl, key, ca)
  expect(await stalled.line('the reader stalls', 60_000)).toEqual({ status: 200 })
  await using clients = start('clients', gatewayUrl, key, ca)
  expect(await upstream.line('all are at the upstream', 60_000)).toEqual({ atOnce: STREAMS })
  const seen = await clients.line('all streams have ended', 60_000)
  const { stalledBytes } = (await (await fetch(new URL('/stalled-bytes', String(url)))).json()) as Line
  const after = memoryBytes(gatewayPid)
  stalled.child.kill('SIGKILL')
  gateway.child.stdin.end()
  const report = await gateway.line('the report', 60_000)

  process.stderr.write(`${JSON.stringify({ ...seen, stalledBytes, before, after, report })}\n`)
  expect(seen).toMatchObject({ done: STREAMS, closedEarly: 0, events: STREAMS * EVENTS })
  expect(seen.p99Ms).toBeLessThan(1_500)
  // Bytes in buffers of kernel and runtimes, of a gigabyte in all.
  expect(stalledBytes).toBeLessThan(64 * MIB)
  expect(after.most - before.now).toBeLessThan(256 * MIB)
  expect(report).toMatchObject({ requests: STREAMS + 1, running: 0 })
}
