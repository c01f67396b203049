// Back-off after failures in a row: the delay doubles from `minMs` up to `maxMs`. Pure.

export type BackOffRange = { readonly minMs: number; readonly maxMs: number }

/** Delay before the next attempt; 0 without a failure. */
export function backOffMs({ minMs, maxMs }: BackOffRange, failures: number): number {
  return failures === 0 ? 0 : Math.min(minMs * 2 ** Math.min(failures - 1, 30), maxMs)
}
