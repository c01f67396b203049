// A request that comes too soon. Pure. The wire has no code of its own for it (contract 7.1): status 429 and Retry-After say what it is.

import { Fault } from '../base/fault.ts'

/** Status 429 with Retry-After. */
export class LimitedFault extends Fault {
  readonly retryAfterSeconds: number

  constructor(message: string, waitMs: number) {
    super('rate_limited', message)
    this.retryAfterSeconds = Math.min(waitSecondsMax, Math.max(1, Math.ceil(waitMs / 1000)))
  }
}

/** Whatever a clock has done, no client is told to wait for years. */
const waitSecondsMax = 45 * 24 * 60 * 60
