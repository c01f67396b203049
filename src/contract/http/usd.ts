// Money on the wire: decimal text, exact to a billionth of a dollar. Pure.

/** Nano-dollars as a decimal with nine places. */
export function nanoUsdText(nanoUsd: bigint): string {
  const digits = nanoUsd.toString().padStart(10, '0')
  return `${digits.slice(0, -9)}.${digits.slice(-9)}`
}

/** A decimal with at most six places before the point and nine behind it, in nano-dollars: always a safe integer. */
export function nanoUsdOf(text: string): number {
  const [whole = '', fraction = ''] = text.split('.')
  return Number(whole) * 1_000_000_000 + Number(fraction.padEnd(9, '0'))
}
