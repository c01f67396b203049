// IPv6 addresses and networks as numbers. Pure. Input is already checked: hexadecimal, no IPv4 part, no zone.

/** Addresses from the first to the last. */
export type Ipv6Range = { readonly first: bigint; readonly last: bigint }

/** RFC 4291 2.2, forms 1 and 2. */
export function parseIpv6(address: string): bigint {
  const [before = '', after] = address.split('::')
  const groups = (text: string) => (text === '' ? [] : text.split(':'))
  const tail = groups(after ?? '')
  const head = groups(before)
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => '0')
  return [...head, ...zeros, ...tail].reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n)
}

/** One spelling for each address (RFC 5952 4). */
export function formatIpv6(value: bigint): string {
  const groups = Array.from({ length: 8 }, (_, at) => ((value >> BigInt(16 * (7 - at))) & 0xffffn).toString(16))
  const run = longestZeros(groups)
  if (run === null) return groups.join(':')
  return `${groups.slice(0, run.at).join(':')}::${groups.slice(run.at + run.count).join(':')}`
}

/** The first of the longest runs; one group alone is not shortened. */
function longestZeros(groups: readonly string[]): { at: number; count: number } | null {
  let best: { at: number; count: number } | null = null
  for (let at = 0; at < groups.length; at += 1) {
    let count = 0
    while (groups[at + count] === '0') count += 1
    if (count > Math.max(1, best?.count ?? 0)) best = { at, count }
  }
  return best
}

/** The range of `ADDRESS/N`; bits after the prefix do not matter. An address alone is its own range. */
export function rangeOfV6(network: string): Ipv6Range {
  const [address = '', length = '128'] = network.split('/')
  const size = 1n << BigInt(128 - Number(length))
  const value = parseIpv6(address)
  const first = value - (value % size)
  return { first, last: first + size - 1n }
}

/** The network with no bits set after its prefix, in the spelling of `formatIpv6`. */
export function canonicalNetworkV6(network: string): string {
  const [, length = '128'] = network.split('/')
  return `${formatIpv6(rangeOfV6(network).first)}/${length}`
}

export function coversV6(outer: Ipv6Range, inner: Ipv6Range): boolean {
  return outer.first <= inner.first && inner.last <= outer.last
}

/** The same addresses in as few ranges as can be, in order. */
export function mergedV6(ranges: readonly Ipv6Range[]): Ipv6Range[] {
  const result: Ipv6Range[] = []
  for (const range of ranges.toSorted((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0))) {
    const before = result.at(-1)
    if (before === undefined || range.first > before.last + 1n) result.push(range)
    else if (range.last > before.last) result[result.length - 1] = { first: before.first, last: range.last }
  }
  return result
}
