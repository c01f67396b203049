// IPv4 addresses and networks as numbers. Pure. Input is already checked: an address is four decimal bytes.

/** Addresses from the first to the last. */
export type Ipv4Range = { readonly first: number; readonly last: number }

export function parseIpv4(address: string): number {
  return address.split('.').reduce((value, part) => value * 256 + Number(part), 0)
}

export function formatIpv4(value: number): string {
  return [24, 16, 8, 0].map(shift => (value >>> shift) & 0xff).join('.')
}

/** The range of `A.B.C.D/N`; bits after the prefix do not matter. An address alone is its own range. */
export function rangeOf(network: string): Ipv4Range {
  const [address = '', length = '32'] = network.split('/')
  const size = 2 ** (32 - Number(length))
  const value = parseIpv4(address)
  const first = value - (value % size)
  return { first, last: first + size - 1 }
}

/** The network with no bits set after its prefix. */
export function canonicalNetwork(network: string): string {
  const [, length = '32'] = network.split('/')
  return `${formatIpv4(rangeOf(network).first)}/${length}`
}

export function containsRange(outer: Ipv4Range, inner: Ipv4Range): boolean {
  return outer.first <= inner.first && inner.last <= outer.last
}

/** The same addresses in as few ranges as can be, in order. */
export function merged(ranges: readonly Ipv4Range[]): Ipv4Range[] {
  const result: Ipv4Range[] = []
  for (const range of ranges.toSorted((a, b) => a.first - b.first)) {
    const before = result.at(-1)
    if (before === undefined || range.first > before.last + 1) result.push(range)
    else result[result.length - 1] = { first: before.first, last: Math.max(before.last, range.last) }
  }
  return result
}
