// Health of the built-in worker: polls its socket until it is healthy, then watches it. Effects: its socket.

import { type Clock, pause } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'

export type HealthTiming = {
  /** Interval of checks until the worker is healthy. */
  readonly pollMs: number
  /** Interval of checks afterwards. */
  readonly healthIntervalMs: number
  readonly healthTimeoutMs: number
  /** Number of consecutive failed checks after which a ready worker is killed. */
  readonly healthFailuresMax: number
}

export type HealthDeps = {
  readonly socket: string
  readonly clock: Clock
  readonly timing: HealthTiming
  /** Aborted when the process must end, or has ended. */
  readonly signal: AbortSignal
}

/** Waits until the worker is healthy. False if it was not in time, or the signal was aborted. */
export async function becomesHealthy(deps: HealthDeps, timeoutMs: number): Promise<boolean> {
  const { clock, signal, timing } = deps
  const deadlineMs = clock.monotonicMs() + timeoutMs
  while (!(await isHealthy(deps))) {
    if (signal.aborted || clock.monotonicMs() >= deadlineMs) return false
    await pause(clock, timing.pollMs, signal)
  }
  return true
}

/** Polls until the signal is aborted. `check` throws to end the worker. Throws Fault host.command_timeout. */
export async function watchHealth(deps: HealthDeps, check: () => void): Promise<void> {
  const { clock, signal, timing } = deps
  let failures = 0
  while (!signal.aborted) {
    await pause(clock, timing.healthIntervalMs, signal)
    if (signal.aborted) return
    check()
    failures = (await isHealthy(deps)) ? 0 : failures + 1
    if (failures >= timing.healthFailuresMax && !signal.aborted) {
      throw new Fault('host.command_timeout', `the worker failed ${failures} health checks in a row`)
    }
  }
}

async function isHealthy({ socket, signal, timing }: HealthDeps): Promise<boolean> {
  try {
    const response = await fetch('http://built-in/health', {
      unix: socket,
      // Uses a new connection each time, because a kept one may lead to an earlier process.
      keepalive: false,
      // A redirect would lead away from the socket: a compromised worker could make this host send requests elsewhere.
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(timing.healthTimeoutMs)]),
    })
    await response.body?.cancel()
    return response.ok
  } catch {
    return false
  }
}
