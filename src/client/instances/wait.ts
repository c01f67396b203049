// Waits until an instance is ready. Effects: requests to service A, timers.

import type { Clock } from '../../base/clock.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import type { SeenInstance } from './records.ts'
import { RefusedFault, type Service } from './service.ts'

export type Wait = {
  readonly service: Pick<Service, 'retrieve' | 'host'>
  readonly name: string
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
  readonly timeoutMs: number
  /** Called with each record, and with the problem of a request that is repeated. */
  readonly onStatus: (words: string) => Promise<void>
}

const firstDelayMs = 1_000
const delayMsMax = 5_000
const retryMsMax = 60_000
/** No share: requests of one command, which fail one after another. */
const failuresMax = 10

/**
 * Resolves when the instance is no longer provisioning, or when the time is over: the caller looks at the status. Null
 * if it does not exist. Faults: those of the service; api.unreachable after several attempts.
 */
export async function waitForInstance(wait: Wait): Promise<SeenInstance | null> {
  const { service, name, clock, timeoutMs, onStatus } = wait
  const endMs = clock.monotonicMs() + timeoutMs
  let delayMs = firstDelayMs
  let failures = 0
  for (;;) {
    let record: SeenInstance | null = null
    let retryMs = delayMs
    try {
      record = await service.retrieve(name)
      failures = 0
      if (record === null || record.status !== 'provisioning') return record
      await onStatus(`${name} is ${record.status}`)
    } catch (error) {
      failures += 1
      if (!isTransient(error) || failures >= failuresMax || clock.monotonicMs() >= endMs) throw error
      retryMs = Math.max(delayMs, Math.min(retryMsMax, error instanceof RefusedFault ? (error.retryMs ?? 0) : 0))
      await onStatus(`${service.host} did not answer: trying again`)
    }
    const leftMs = endMs - clock.monotonicMs()
    if (record !== null && leftMs <= 0) return record
    await clock.sleep(Math.min(retryMs, Math.max(leftMs, 0)))
    delayMs = Math.min(delayMsMax, delayMs * 1.5)
  }
}

/** Reports whether the request may succeed when it is repeated. */
function isTransient(error: unknown): boolean {
  if (error instanceof RefusedFault) return error.httpStatus === 429 || error.httpStatus >= 500
  return error instanceof AdvisedFault && error.code === 'api.unreachable'
}
