// Elements of sets and maps of nftables as text. Pure.

export type Element = readonly [collection: string, element: string]

/** Returns one command per set or map, because with one per element nft takes twice as long. */
export function elementLines(table: string, elements: readonly Element[]): string[] {
  const byName = Map.groupBy(elements, ([name]) => name)
  return [...byName].map(
    ([name, group]) => `add element ${table} ${name} { ${group.map(([, element]) => element).join(', ')} }`,
  )
}
