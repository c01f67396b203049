// Records when a bearer key was last used. This small write must not fail a request, nor delay each. Effects: through
// `write`.

import type { Logger } from '../base/log.ts'

export type KeyUseDeps = {
  readonly log: Logger
  /** Such as `a gateway key`. */
  readonly what: string
  /** Shortest time between two writes for a key. */
  readonly intervalMs: number
  readonly write: (use: { readonly prefix: string; readonly nowMs: number }) => void
}

type UsedKey = { readonly prefix: string; readonly lastUsedAtMs: number | null }

/** While the database cannot be written, each attempt may block the event loop for the whole lock timeout. */
const failurePauseMs = 10_000

export function createKeyUse({ log, what, intervalMs, write }: KeyUseDeps): (key: UsedKey, nowMs: number) => void {
  let failedAtMs: number | null = null
  return (key, nowMs) => {
    if (isWithin(intervalMs, key.lastUsedAtMs, nowMs) || isWithin(failurePauseMs, failedAtMs, nowMs)) return
    try {
      write({ prefix: key.prefix, nowMs })
      failedAtMs = null
    } catch (error) {
      failedAtMs = nowMs
      log.warn(`the use of ${what} was not noted`, { key: key.prefix, error })
    }
  }
}

/** Ignores a time in the future, as after the clock was set back. */
function isWithin(ms: number, atMs: number | null, nowMs: number): boolean {
  return atMs !== null && nowMs >= atMs && nowMs - atMs < ms
}
