// The rows of a long table that are drawn. Pure.

/** Rows have one height, so that their places follow from their numbers. */
export const rowPixels = 44
const spareRows = 8

/** Rows that a view of `heightPixels` from `topPixels` shows, with spare ones around. */
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
