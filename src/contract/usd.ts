// Money on the wire: decimal text, exact to a billionth of a dollar. Pure.

/** Nano-dollars as a decimal with nine places. */
export function nanoUsdText(nanoUsd: bigint): string {
  const digits = nanoUsd.toString().padStart(10, '0')
  return `${digits.slice(0, -9)}.${digits.slice(-9)}`
}
