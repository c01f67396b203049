// Comparison of found values with those that are due. Pure.

const shownMax = 20

/** Throws an error that says where they differ, unless they are equal. */
export function same(what: string, found: unknown, due: unknown): void {
  const text = differenceOf(found, due)
  if (text !== null) throw new Error(`${what}: ${text}`)
}

/** Null if they are equal. */
export function differenceOf(found: unknown, due: unknown): string | null {
  if (Bun.deepEquals(found, due, true)) return null
  const [is, should] = [piecesOf(found), piecesOf(due)]
  const only = (some: readonly string[], others: readonly string[]) =>
    some.filter(piece => !others.includes(piece)).slice(0, shownMax)
  return `found ${only(is, should).join(', ')}; and due is ${only(should, is).join(', ')}`
}

function piecesOf(value: unknown): string[] {
  if (value instanceof Map) return [...value].map(pair => JSON.stringify(pair))
  if (Array.isArray(value)) return value.map(element => JSON.stringify(element))
  if (typeof value !== 'object' || value === null) return [String(value)]
  return Object.entries(value).flatMap(([name, inner]) => piecesOf(inner).map(piece => `${name} ${piece}`))
}
