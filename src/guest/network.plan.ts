// Addresses of the interface (a /32, a /128 or both, each with an on-link next hop) as `ip` commands and resolv.conf.
// Pure.

import { isIPv6 } from 'node:net'
import type { Network } from '../contract/vm/network.ts'

/** The first wrong field in words, or null. The schema's patterns let 999.1.1.1 and ::::: through. */
export function networkProblem({ address, gateway, v6, resolvers, mtuBytes }: Network): string | null {
  if (address === undefined && v6 === undefined) return 'network.address: missing for both families'
  if ((address === undefined) !== (gateway === undefined)) return 'network.gateway: requires network.address'
  if (address !== undefined && !isUnicastIpv4(address)) return 'network.address: not an IPv4 host address'
  if (gateway !== undefined && !isUnicastIpv4(gateway)) return 'network.gateway: not an IPv4 host address'
  if (v6 !== undefined && !isUnicastIpv6(v6.address)) return 'network.v6.address: not an IPv6 host address'
  if (v6 !== undefined && !isUnicastIpv6(v6.gateway)) return 'network.v6.gateway: not an IPv6 host address'
  if (!resolvers.every(resolver => isUnicastIpv4(resolver) || isUnicastIpv6(resolver)))
    return 'network.resolvers: not a host address'
  if (v6 !== undefined && mtuBytes < mtuMinV6) return `network.mtuBytes: below ${mtuMinV6}, which IPv6 needs`
  if (address !== undefined && address === gateway) return 'network.gateway: the same as the address'
  return v6 !== undefined && v6.address === v6.gateway ? 'network.v6.gateway: the same as the address' : null
}

/** RFC 8200 5. */
const mtuMinV6 = 1280

/** Commands in order, each of which may be repeated. iproute2's ip(8). */
export function planNetwork({ address, gateway: nextHop, v6, mtuBytes }: Network, device: string): string[][] {
  return [
    // No link-local address: the host drops its packets.
    ...(v6 === undefined ? [] : [['ip', 'link', 'set', 'dev', device, 'addrgenmode', 'none']]),
    ['ip', 'link', 'set', 'dev', device, 'mtu', String(mtuBytes), 'up'],
    ...(address === undefined || nextHop === undefined ? [] : planV4({ address, nextHop }, device)),
    ...(v6 === undefined ? [] : planV6(v6, device)),
  ]
}

function planV4({ address, nextHop }: { address: string; nextHop: string }, device: string): string[][] {
  return [
    ['ip', '-4', 'address', 'flush', 'dev', device],
    ['ip', 'address', 'replace', `${address}/32`, 'dev', device],
    ['ip', 'route', 'replace', `${nextHop}/32`, 'dev', device, 'scope', 'link', 'src', address],
    ['ip', 'route', 'replace', 'default', 'via', nextHop, 'dev', device, 'src', address],
  ]
}

/** No duplicate detection (nodad), because no other machine has the address; the next hop is a permanent neighbour. */
function planV6({ address, gateway: nextHop, gatewayMac }: NonNullable<Network['v6']>, device: string): string[][] {
  return [
    ['ip', '-6', 'address', 'flush', 'dev', device],
    ['ip', '-6', 'address', 'replace', `${address}/128`, 'dev', device, 'nodad'],
    ['ip', '-6', 'neighbour', 'replace', nextHop, 'lladdr', gatewayMac, 'dev', device, 'nud', 'permanent'],
    ['ip', '-6', 'route', 'replace', `${nextHop}/128`, 'dev', device, 'src', address],
    ['ip', '-6', 'route', 'replace', 'default', 'via', nextHop, 'dev', device, 'src', address],
  ]
}

/** resolv.conf(5). */
export function resolvConf(network: Network): string {
  return network.resolvers.map(resolver => `nameserver ${resolver}\n`).join('')
}

/** Same addresses, order of resolvers included. */
export function sameNetwork(a: Network, b: Network): boolean {
  return (
    a.address === b.address &&
    a.gateway === b.gateway &&
    a.v6?.address === b.v6?.address &&
    a.v6?.gateway === b.v6?.gateway &&
    a.v6?.gatewayMac === b.v6?.gatewayMac &&
    a.mtuBytes === b.mtuBytes &&
    a.resolvers.join() === b.resolvers.join()
  )
}

function isUnicastIpv4(text: string): boolean {
  const octets = text.split('.')
  const first = Number(octets[0])
  const canonical = octets.every(octet => /^(0|[1-9][0-9]{0,2})$/.test(octet) && Number(octet) <= 255)
  return octets.length === 4 && canonical && first >= 1 && first <= 223
}

/** Excludes unspecified, loopback, link-local and multicast addresses (RFC 4291 2.4). */
function isUnicastIpv6(text: string): boolean {
  return isIPv6(text) && /^[0-9a-f:]+$/.test(text) && !/^(::1?$|fe[89ab]|ff)/.test(text)
}
