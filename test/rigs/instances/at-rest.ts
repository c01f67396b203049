// Measures the processor time that an unused VM costs its host. Effects: reads /proc, waits.

import { expect } from 'bun:test'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import { qemuProcesses } from '../../../scripts/rigs/leftovers.ts'
import { readProc } from '../../../src/linux/stat.ts'

const windowMs = 20_000
/** Liveness checks and garbage collections fall into some windows and not into others. */
const windowsMax = 3
/**
 * Share of the start's processor time, so that the machine's speed and load cancel out. A guest whose programs polled
 * and collected garbage every second took 4 to 12 %. A guest whose programs wait takes 1.5 to 3 %.
 */
const shareMax = 0.035

/** Expects the only VM of the appliance to be idle: ready, and without a login. */
export async function takesLittleAtRest(appliance: Appliance): Promise<void> {
  const [pid = 0, ...others] = qemuProcesses(appliance.stateDir)
  expect(others).toEqual([])
  const startSeconds = processorSeconds(pid)
  const shares: number[] = []
  while (shares.length < windowsMax && !shares.some(share => share <= shareMax)) {
    const before = processorSeconds(pid)
    await Bun.sleep(windowMs)
    shares.push((processorSeconds(pid) - before) / startSeconds)
  }
  process.stdout.write(`start: ${startSeconds} s of a processor; ${windowMs / 1000} s of rest: ${shares.join(', ')}\n`)
  expect(Math.min(...shares), `${shares.join(', ')} of ${startSeconds} s`).toBeLessThanOrEqual(shareMax)
  // A stopped VM takes nothing and would pass.
  expect(Math.max(...shares)).toBeGreaterThan(0)
}

/** User and system time of all threads, ended ones too: fields 14 and 15 (proc_pid_stat(5)), in ticks of 10 ms. */
function processorSeconds(pid: number): number {
  const text = readProc(pid, 'stat') ?? ''
  const [user, system] = text
    .slice(text.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 13)
  return (Number(user) + Number(system)) / 100
}
