// Groups client addresses under shared limits: a group is the addresses that one client may own. Pure.

import { isIPv4, isIPv6 } from 'node:net'

/**
 * An IPv4 address itself, also in its IPv6 form (RFC 4291 2.5.5.2); the first 64 bits of other IPv6 addresses. All
 * other texts share one limit.
 */
export function limitedPrefix(address: string): string {
  const [plain = ''] = address.split('%')
  if (isIPv4(plain)) return plain
  if (!isIPv6(plain)) return 'unknown'
  const groups = groupsOf(plain)
  if (groups.slice(0, 5).every(group => group === 0) && groups[5] === 0xffff) {
    return groups
      .slice(6)
      .flatMap(group => [group >> 8, group & 0xff])
      .join('.')
  }
  return `${groups
    .slice(0, 4)
    .map(group => group.toString(16))
    .join(':')}::/64`
}

/** Size of a network: that of a customer, a site, a provider. */
export type NetworkWidth = 'narrow' | 'middle' | 'wide'
export type Network = { readonly name: string; readonly width: NetworkWidth }

/** The networks around an address that one client may own, narrowest first. All other texts form one network. */
export function networksOf(address: string): readonly Network[] {
  const prefix = limitedPrefix(address)
  if (isIPv4(prefix)) {
    const [a, b, c] = prefix.split('.')
    return [
      { name: `${a}.${b}.${c}.0/24`, width: 'narrow' },
      { name: `${a}.${b}.0.0/16`, width: 'wide' },
    ]
  }
  if (prefix === 'unknown') {
    return [
      { name: prefix, width: 'narrow' },
      { name: prefix, width: 'wide' },
    ]
  }
  const [a, b, c, d = '0'] = prefix.replace('::/64', '').split(':')
  const upper = (Number.parseInt(d, 16) & 0xff00).toString(16)
  return [
    { name: `${a}:${b}:${c}:${upper}::/56`, width: 'narrow' },
    { name: `${a}:${b}:${c}::/48`, width: 'middle' },
    { name: `${a}:${b}::/32`, width: 'wide' },
  ]
}

/** The eight 16-bit groups (RFC 4291 2.2). */
function groupsOf(address: string): number[] {
  const [head = '', tail] = withoutDots(address).split('::')
  const numbers = (text: string) => (text === '' ? [] : text.split(':').map(group => Number.parseInt(group, 16)))
  const before = numbers(head)
  if (tail === undefined) return before
  const after = numbers(tail)
  return [...before, ...Array<number>(8 - before.length - after.length).fill(0), ...after]
}

/** The last 32 bits may be written as IPv4. */
function withoutDots(address: string): string {
  return address.replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_all, a: string, b: string, c: string, d: string) =>
    [(Number(a) << 8) | Number(b), (Number(c) << 8) | Number(d)].map(group => group.toString(16)).join(':'),
  )
}
