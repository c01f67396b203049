// Elements of sets and maps of nftables as text. Pure.

export type Element = readonly [collection: string, element: string]

/** One command for each set and map: nft takes twice as long over one for each element. */
export function elementLines(table: string, elements: readonly Element[]): string[] {
  const byName = Map.groupBy(elements, ([name]) => name)
  return [...byName].map(
    ([name, those]) => `add element ${table} ${name} { ${those.map(([, element]) => element).join(', ')} }`,
  )
}
