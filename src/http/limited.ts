// A request that comes too soon, or cannot be served now. Pure. Status and Retry-After say what they are; the wires have no codes of their own for these.

import { Fault, type FaultCode, type FaultOptions } from '../base/fault.ts'

class LaterFault extends Fault {
  readonly retryAfterSeconds: number

  constructor(code: FaultCode, message: string, waitMs: number, options: FaultOptions = {}) {
    super(code, message, options)
    this.retryAfterSeconds = Math.min(waitSecondsMax, Math.max(1, Math.ceil(waitMs / 1000)))
  }
}

/** Status 429 with Retry-After. */
export class LimitedFault extends LaterFault {
  constructor(message: string, waitMs: number) {
    super('rate_limited', message, waitMs)
  }
}

/** Status 503 with Retry-After: what was asked for cannot be had now. The message is for the client. */
export class UnavailableFault extends LaterFault {
  constructor(message: string, waitMs: number, options: FaultOptions = {}) {
    super('attestation_unavailable', message, waitMs, options)
  }
}

export function retryAfterOf(error: unknown): number | null {
  return error instanceof LaterFault ? error.retryAfterSeconds : null
}

/** Whatever a clock has done, no client is told to wait for years. */
const waitSecondsMax = 45 * 24 * 60 * 60
