// Computes which rows of a long table to draw. Pure.

/** All rows have the same height, so their positions follow from their numbers. */
export const rowPixels = 44
const spareRows = 8

/** Returns the rows in a view of `heightPixels` from `topPixels`, with spare ones around. */
export function rowsInView({
  topPixels,
  heightPixels,
  count,
}: {
  readonly topPixels: number
  readonly heightPixels: number
  readonly count: number
}): { readonly from: number; readonly to: number } {
  const first = Math.floor(topPixels / rowPixels)
  const shown = Math.ceil(heightPixels / rowPixels) + 1
  return { from: Math.max(0, first - spareRows), to: Math.min(count, first + shown + spareRows) }
}
