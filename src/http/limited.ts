// A request that comes too soon, or cannot be served now. Pure. Status and Retry-After say what they are; the wires have no codes of their own for these.

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

/** Status 503 with Retry-After: what was asked for cannot be had now. The message is for the client. */
export class UnavailableFault extends LaterFault {
  constructor(message: string, waitMs: number, { code, ...options }: UnavailableOptions = {}) {
    super(code ?? 'attestation_unavailable', message, waitMs, options)
  }
}

type UnavailableOptions = FaultOptions & { readonly code?: 'attestation_unavailable' | StorageCode }

/**
 * A request that failed since the database cannot be written now, in words for clients or in `ownMessage`; null: it failed for another reason. That
 * nothing was changed holds for what is one transaction.
 */
export function storageFault(error: unknown, ownMessage?: string): UnavailableFault | null {
  const code = isInternal(error) ? storageCodeOf(error) : null
  if (code === null || error instanceof UnavailableFault) return null
  const { message, waitMs } = STORAGE_FAILURES[code]
  return new UnavailableFault(ownMessage ?? message, waitMs, { code, cause: error })
}

/** Words for clients, and when to try again. */
export const STORAGE_FAILURES = {
  'store.busy': {
    message:
      'The database of this service is held by another program for the moment. Nothing was changed; send the request again as soon as Retry-After says.',
    waitMs: 2_000,
  },
  'store.unwritable': {
    message:
      'This service cannot write to its disk at present. Nothing was changed; tell the operator, and send the request again as soon as Retry-After says.',
    waitMs: 30_000,
  },
} as const satisfies Record<StorageCode, { readonly message: string; readonly waitMs: number }>

export function retryAfterOf(error: unknown): number | null {
  return error instanceof LaterFault ? error.retryAfterSeconds : null
}

/** Whatever a clock has done, no client is told to wait for years. */
const waitSecondsMax = 45 * 24 * 60 * 60
