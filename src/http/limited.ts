// Requests that come too soon or cannot be served now. Pure. Status and Retry-After express them; the wires have no
// error codes for them.

import { Fault, type FaultCode, type FaultOptions } from '../base/fault.ts'
import { type StorageCode, storageCodeOf } from '../base/storage-failure.ts'
import { isInternal } from './problem.ts'

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

/** Status 503 with Retry-After: temporarily unavailable. Clients see the message. */
export class UnavailableFault extends LaterFault {
  constructor(message: string, waitMs: number, { code, ...options }: UnavailableOptions = {}) {
    super(code ?? 'attestation_unavailable', message, waitMs, options)
  }
}

type UnavailableOptions = FaultOptions & {
  readonly code?: 'attestation_unavailable' | 'fleet.unavailable' | StorageCode
}

/**
 * The failure of a request because the database cannot be written or read now, in words for clients or in `ownMessage`;
 * null for other failures. The words say that nothing was changed, so the request must be a single transaction.
 */
export function storageFault(error: unknown, ownMessage?: string): UnavailableFault | null {
  const code = isInternal(error) ? storageCodeOf(error) : null
  if (code === null || error instanceof UnavailableFault) return null
  const { message, waitMs } = STORAGE_FAILURES[code]
  return new UnavailableFault(ownMessage ?? message, waitMs, { code, cause: error })
}

export function retryAfterOf(error: unknown): number | null {
  return error instanceof LaterFault ? error.retryAfterSeconds : null
}

/** Clients must not wait for years because of a clock that jumped. */
const waitSecondsMax = 45 * 24 * 60 * 60

/** Words for clients while the database cannot be used, and the time until the next attempt. */
export const STORAGE_FAILURES = {
  'store.busy': {
    message:
      'The database of this service is locked by another program. Nothing was changed; send the request again after the time in Retry-After.',
    waitMs: 2_000,
  },
  'store.unwritable': {
    message:
      'This service cannot write to its disk at present. Nothing was changed; tell the operator, and send the request again after the time in Retry-After.',
    waitMs: 30_000,
  },
  'store.corrupt': {
    message:
      'The database of this service is damaged. Nothing was changed; tell the operator, and send the request again after the time in Retry-After.',
    waitMs: 60_000,
  },
} as const satisfies Record<StorageCode, { readonly message: string; readonly waitMs: number }>
