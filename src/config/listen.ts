// Listen addresses, and which of them are taken twice. Pure.

import { isIPv4, isIPv6 } from 'node:net'
import { formatIpv6, parseIpv6 } from '../base/ipv6.ts'
import type { Config } from './schema.ts'

export type ListenAddress = { readonly hostname: string; readonly port: number }

/** The listeners on TCP, in the order in which they start: a later one finds its address taken. DNS has UDP as well. */
export const LISTENERS = [
  'instances',
  'inference',
  'builds',
  'dns',
  'console',
  'metrics',
] as const satisfies readonly (keyof Config['listen'])[]
export type Listener = (typeof LISTENERS)[number]

/** Splits `host:port`; IPv6 hosts stand in brackets. Null when it is neither. */
export function parseListen(listen: string): ListenAddress | null {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})$/.exec(listen)
  if (match === null) return null
  const [, v6, v4, digits] = match
  const port = Number(digits)
  if (port > 65_535) return null
  if (v6 !== undefined) return isIPv6(v6) ? { hostname: v6, port } : null
  return v4 !== undefined && isIPv4(v4) ? { hostname: v4, port } : null
}

/** An address that the schema and its cross-checks have passed. */
export function listenAddress(text: string): ListenAddress {
  const parsed = parseListen(text)
  if (parsed === null) throw new Error(`invariant broken: unchecked listen address ${text}`)
  return parsed
}

/** Whether two listeners of one protocol cannot both have their address. Port 0 is any free port. */
export function listenOverlap(a: ListenAddress, b: ListenAddress): boolean {
  if (a.port !== b.port || a.port === 0) return false
  const [left, right] = [canonicalHost(a.hostname), canonicalHost(b.hostname)]
  return left === right || coversHost(left, right) || coversHost(right, left)
}

/** `::` takes every address of both families; `0.0.0.0` every IPv4 address. */
function coversHost(host: string, other: string): boolean {
  return host === '::' || (host === '0.0.0.0' && (other === '::' || isIPv4(other)))
}

/** One spelling per address (RFC 5952). IPv4 addresses mapped into IPv6 (RFC 4291 2.5.5.2) are IPv4 addresses. */
function canonicalHost(hostname: string): string {
  if (isIPv4(hostname)) return hostname
  const host = new URL(`http://[${hostname}]`).hostname.slice(1, -1)
  const mapped = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(host)
  if (mapped === null) return host
  const [high, low] = [Number.parseInt(mapped[1] ?? '', 16), Number.parseInt(mapped[2] ?? '', 16)]
  return [high >> 8, high & 0xff, low >> 8, low & 0xff].join('.')
}

/** Address of a listener for clients on this machine. */
export function localUrl(listen: string, port: number): string {
  const { hostname } = listenAddress(listen)
  if (hostname === '0.0.0.0' || hostname === '::') return `https://127.0.0.1:${port}`
  return hostname.includes(':') ? `https://[${hostname}]:${port}` : `https://${hostname}:${port}`
}

/** Host names of the appliance itself under its domain, and the listener behind each. */
export const HOST_LISTENERS = {
  ns: 'dns',
  instances: 'instances',
  inference: 'inference',
  builds: 'builds',
} as const satisfies Record<string, Listener>
export type HostName = keyof typeof HOST_LISTENERS

/**
 * Returns the IPv4 address of each host name: `network.public_v4`, otherwise the one of its listener or, if that has
 * all addresses, the one of the default route. Null if none is known, or the service is off.
 */
export function hostAddresses(
  { listen, network }: Pick<Config, 'listen' | 'network'>,
  routeAddress: string | null,
): Record<HostName, string | null> {
  const addressOf = (listener: Listener) => {
    if (listen[listener] === '') return null
    if (network.public_v4 !== '') return network.public_v4
    const host = canonicalHost(listenAddress(listen[listener]).hostname)
    if (host === '0.0.0.0' || host === '::') return routeAddress
    return isIPv4(host) ? host : null
  }
  const { ns, instances, inference, builds } = HOST_LISTENERS
  return {
    ns: addressOf(ns),
    instances: addressOf(instances),
    inference: addressOf(inference),
    builds: addressOf(builds),
  }
}

/**
 * Where IPv4 clients reach a listener: its address (`0.0.0.0`: every one of this host) and port. An IPv6 address alone
 * has none: null. Null as a whole where it is off, or has a port that is found at the start.
 */
export function listenV4(text: string): { readonly address: string | null; readonly port: number } | null {
  if (text === '') return null
  const { hostname, port } = listenAddress(text)
  if (port === 0) return null
  const host = canonicalHost(hostname)
  if (host === '::') return { address: '0.0.0.0', port }
  return { address: isIPv4(host) ? host : null, port }
}

/** UDP port of the next hop of instances where they resolve names, if there is a list (`network.allow_names`). */
export const guestDnsPort = 53

/** How instances reach the inference gateway. */
type GuestGateway = {
  /** TCP ports of their next hop that instances may reach; the firewall closes all others. */
  readonly ports: readonly number[]
  readonly baseUrl: string
  /** Address of the host in it; null if the configuration names a gateway elsewhere, which must be publicly trusted. */
  readonly address: string | null
}

/**
 * Follows `listen.inference`, so that instances get the address that the firewall opens. It opens no port if the
 * gateway is off, or has a free port (0), which the configuration cannot know.
 */
export function guestGateway({ listen, network, instances }: Config, name: string): GuestGateway {
  const port = listen.inference === '' ? 0 : listenAddress(listen.inference).port
  const origin = port === 0 ? `https://${name}` : `https://${name}:${port}`
  const elsewhere = instances.inference_base_url
  return {
    ports: port === 0 ? [] : [port],
    baseUrl: elsewhere || `${origin}/v1`,
    address: elsewhere !== '' ? null : network.pool_v4 === '' ? network.gateway_v6 : network.gateway_v4,
  }
}

/** Address where VMs hand over snapshots. Null if snapshots are switched off. */
export function snapshotAddress({ network, snapshots }: Pick<Config, 'network' | 'snapshots'>): ListenAddress | null {
  const hostname = network.pool_v4 === '' ? network.gateway_v6 : network.gateway_v4
  return snapshots.kept_per_instance === 0 ? null : { hostname, port: snapshots.port }
}

/** Address as text; null if there is none of this kind. */
type Pair = { readonly v4: string | null; readonly v6: string | null }

/**
 * IPv4 by `hostAddresses`, IPv6 if the listener has such an address or listens on all. Null if neither is known, or the
 * service is off. `routeAddress`: this host's address on the default route.
 */
export function serviceAddresses(
  config: Pick<Config, 'listen' | 'network'>,
  routeAddress: string | null,
): Record<HostName, Pair | null> {
  const v4 = hostAddresses(config, routeAddress)
  const both = (name: HostName) => {
    const addresses = { v4: v4[name], v6: listenerV6(config.listen[HOST_LISTENERS[name]], config.network.public_v6) }
    return addresses.v4 === null && addresses.v6 === null ? null : addresses
  }
  return { ns: both('ns'), instances: both('instances'), inference: both('inference'), builds: both('builds') }
}

/**
 * IPv6 address of a listener, spelled by RFC 5952; `publicAddress` if it listens on all. Null for IPv4 only, switched
 * off, or a port that is chosen at the start.
 */
function listenerV6(listen: string, publicAddress: string): string | null {
  const v4 = listenV4(listen)
  if (v4 === null) return null
  if (listenAddress(listen).hostname === '::') return publicAddress === '' ? null : formatIpv6(parseIpv6(publicAddress))
  if (v4.address !== null) return null
  return new URL(`http://[${listenAddress(listen).hostname}]`).hostname.slice(1, -1)
}
