// Elements `addresses . ports` of a set of intervals, of either family. Pure.

import { merged } from '../../base/ipv4.ts'

type Range<Address> = { readonly first: Address; readonly last: Address }
type Entry<Address> = Range<Address> & { readonly ports: Range<number> | null }

/** How addresses of a family are enumerated and written. */
export type Family<Address> = {
  readonly after: (address: Address) => Address
  readonly before: (address: Address) => Address
  readonly text: (range: Range<Address>) => string
}

/**
 * Splits the addresses at the ends of all entries. Each disjoint range gets the ports of all entries that contain it.
 */
export function portElements<Address extends number | bigint>(
  allowed: readonly Entry<Address>[],
  { after, before, text }: Family<Address>,
): string[] {
  const entries = allowed.flatMap(({ first, last, ports }) => (ports === null ? [] : [{ first, last, ports }]))
  const ends = new Set(entries.flatMap(({ first, last }) => [first, after(last)]))
  const bounds = [...ends].sort((a, b) => (a < b ? -1 : 1))
  return bounds.slice(0, -1).flatMap((first, at) => {
    const last = before(bounds[at + 1] ?? first)
    const holding = entries.filter(entry => entry.first <= first && last <= entry.last)
    return merged(holding.map(({ ports }) => ports)).map(
      ports =>
        `${text({ first, last })} . ${ports.first === ports.last ? ports.first : `${ports.first}-${ports.last}`}`,
    )
  })
}
