// Computes which rows of a long table to draw. Pure.

/** All rows have the same height, so their positions follow from their numbers. */
export const rowPixels = 44
const cardLinePixels = 28
const cardPaddingPixels = 20
const spareRows = 8

/** Returns the height of a row that is a card, with one line for each column. style/tables.css has the same lines. */
export function cardPixels(columns: number): number {
  return columns * cardLinePixels + cardPaddingPixels
}

/** Returns the rows in a view of `heightPixels` from `topPixels`, with spare ones around. */
export function rowsInView({
  topPixels,
  heightPixels,
  count,
  rowPixels: pixels = rowPixels,
}: {
  readonly topPixels: number
  readonly heightPixels: number
  readonly count: number
  readonly rowPixels?: number
}): { readonly from: number; readonly to: number } {
  const first = Math.floor(topPixels / pixels)
  const shown = Math.ceil(heightPixels / pixels) + 1
  return { from: Math.max(0, first - spareRows), to: Math.min(count, first + shown + spareRows) }
}
