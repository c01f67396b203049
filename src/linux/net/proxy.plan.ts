// Which requests of this host go through the operator's proxy, and what its failures mean. Pure.

import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net'
import { messageOf } from '../../base/fault.ts'
import { formatIpv4 } from '../../base/ipv4.ts'
import { parseIpv6 } from '../../base/ipv6.ts'

/** The table `network.proxy` of the configuration. */
export type ProxySettings = {
  /** http or https, with a port; '' for no proxy. */
  readonly url: string
  /** '' for none. */
  readonly user: string
  readonly password_file: string
  readonly no_proxy: readonly string[]
}

export const noProxyAllowed =
  'NAME, *.NAME for every name below it, an IP address, or a network ADDRESS/N; names in lowercase, without a port'

const NAME = /^(\*\.)?(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z_]([a-z0-9_-]{0,61}[a-z0-9_])?$/

/** Reports whether an entry of `no_proxy` has one of the allowed forms. */
export function isNoProxyEntry(entry: string): boolean {
  const [address = '', length, ...more] = entry.split('/')
  const bits = isIPv4(address) ? 32 : isIPv6(address) && !address.includes('%') ? 128 : 0
  if (bits === 0) return NAME.test(entry)
  if (length === undefined) return true
  return more.length === 0 && /^(0|[1-9][0-9]{0,2})$/.test(length) && Number(length) <= bits
}

/** Loopback addresses, and Debian's names for them; a connection to the unspecified address ends there, too. */
const LOOPBACK = [
  ...['localhost', '*.localhost', 'localhost.localdomain', 'ip6-localhost', 'ip6-loopback'],
  ...['127.0.0.0/8', '0.0.0.0', '::1', '::'],
]

/**
 * Reports whether a request for `url` goes through the proxy: https alone, and neither to loopback nor to an entry of
 * `no_proxy`. Names are not looked up, so that a network matches only addresses in URLs.
 */
export function usesProxy(url: URL, { url: proxy, no_proxy: entries }: ProxySettings): boolean {
  return proxy !== '' && url.protocol === 'https:' && !matches(url.hostname, [...LOOPBACK, ...entries])
}

function matches(hostname: string, entries: readonly string[]): boolean {
  const host = plainHost(hostname)
  const family = isIP(host)
  if (family === 0) {
    return entries.some(entry => (entry.startsWith('*.') ? host.endsWith(entry.slice(1)) : host === entry))
  }
  const list = new BlockList()
  for (const entry of entries) {
    const [address = '', length] = entry.split('/')
    if (isIP(address) === 0) continue
    const kind = isIPv4(address) ? 'ipv4' : 'ipv6'
    if (length === undefined) list.addAddress(address, kind)
    else list.addSubnet(address, Number(length), kind)
  }
  return list.check(host, family === 4 ? 'ipv4' : 'ipv6')
}

const mappedPrefix = 0xffffn

/** The host of a URL, which has lowercase letters and plain addresses: without brackets, final dot and mapping. */
function plainHost(hostname: string): string {
  const host = hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  if (!isIPv6(host)) return host
  const value = parseIpv6(host)
  return value >> 32n === mappedPrefix ? formatIpv4(Number(value & 0xffffffffn)) : host
}

/**
 * Returns the proxy that the environment of a client names for an https URL, as Bun's fetch reads it (1.4.5). Null if
 * it names none, or NO_PROXY has the host: a name (and those below it), an address or a network, `*` for all, with a
 * port for that port alone. Throws an Error that names the variable.
 */
export function proxyInEnvironment(env: Readonly<Record<string, string | undefined>>, url: URL): URL | null {
  const read = (name: string) => env[name.toLowerCase()] || env[name] || ''
  const variable = read('HTTPS_PROXY') === '' ? 'ALL_PROXY' : 'HTTPS_PROXY'
  const text = read(variable)
  const entries = read('NO_PROXY')
    .toLowerCase()
    .split(/[\s,]+/)
  const names = entries.map(entry => hostOfEntry(entry, url.port || '443')).filter(isNoProxyEntry)
  if (text === '' || entries.includes('*')) return null
  if (matches(url.hostname, [...names, ...names.map(name => `*.${name}`)])) return null
  const whole = text.includes('://') ? text : `http://${text}`
  const proxy = URL.canParse(whole) ? new URL(whole) : null
  if (proxy !== null && (proxy.protocol === 'http:' || proxy.protocol === 'https:')) return proxy
  // ALL_PROXY is for other protocols, too.
  if (proxy !== null && variable === 'ALL_PROXY') return null
  throw new Error(`${variable} must be http://HOST:PORT or https://HOST:PORT`)
}

/** An entry of NO_PROXY without brackets, dots at its ends and this port; '' if it is for another port. */
function hostOfEntry(entry: string, port: string): string {
  const [, host = entry, own = port] = /^(\[.*\]|[^:]*):([0-9]+)$/.exec(entry) ?? []
  return own === port ? host.replace(/^\[(.*)\]$/, '$1').replace(/^\*?\.|\.$/g, '') : ''
}

/** The message of an error of Bun's fetch, without the URL and without advice for programmers (1.4.5). */
export function fetchReason(error: unknown): string {
  return messageOf(error).replace(/ (?:fetching "|For more information, pass ).*$/s, '')
}

const UNREACHABLE: ReadonlySet<string> = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT', 'EACCES', 'EPERM'],
  ...['ConnectionRefused', 'FailedToOpenSocket', 'DNSResolveFailed'],
])

/**
 * Returns the message for a request through the proxy that got no response of the far side. `code`, `message`: of
 * fetch. Contains no part of the URL but its host, and nothing that the proxy sent but its status.
 */
export function proxyFailure(
  { code, message }: { readonly code: string; readonly message: string },
  { host }: Pick<URL, 'host'>,
  { url, user }: ProxySettings,
): string {
  // The proxy makes all other connections.
  if (UNREACHABLE.has(code)) return `the proxy ${url} cannot be reached: ${code}`
  const status = code === 'ERR_PROXY_TUNNEL' ? (/: ([0-9]{3})(?: |$)/.exec(message)?.[1] ?? 'no status') : null
  if (status === null) return `through the proxy ${url}: ${message}`
  // Some proxies answer a wrong password with 401.
  if (status !== '407' && status !== '401')
    return `the proxy ${url} refused (${status}): it does not connect this host to ${host}`
  const remedy = user === '' ? 'needs a user: set network.proxy.user' : 'does not accept the user of network.proxy'
  return `the proxy ${url} refused (${status}): it ${remedy}`
}
