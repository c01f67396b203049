// The check of the proxy for outgoing requests in `strongroom doctor`. Pure.

import { type Check, fail, type Outcome, pass, skip } from './check.ts'

export type ProxyFacts = {
  readonly url: string
  /** Hosts that the daemon reaches through it. */
  readonly hosts: readonly { readonly host: string; readonly outcome: Outcome }[]
  /** Files that it needs, and only root may read; then nothing was tried. */
  readonly unread: readonly string[]
}

const name = 'proxy'
const ways = 'or name the hosts that this host reaches by itself in network.proxy.no_proxy'

/** By the words of `linux/net`: what can be done about a failure. The first that matches counts. */
const REMEDIES: readonly (readonly [RegExp, string])[] = [
  [/^the proxy .* cannot be reached/, 'start the proxy, let this host connect to it, or correct network.proxy.url'],
  [/^the proxy .* refused \(40[17]\)/, 'correct network.proxy.user and the password in network.proxy.password_file'],
  [/^the proxy .* refused/, `let the proxy connect to these hosts, ${ways}`],
  [/^network\.proxy\.password_file /, 'write the password of network.proxy.user into this file'],
  [/^through the proxy /, `let the proxy pass on TLS unchanged, and the host answer with a valid certificate, ${ways}`],
  [/./, `see the log of the proxy, ${ways}`],
]

export function proxyChecks(facts: ProxyFacts | null): Check[] {
  if (facts === null) return []
  const { url, hosts, unread } = facts
  const failed = hosts.filter(({ outcome }) => !outcome.ok)
  const names = hosts.map(({ host }) => host).join(', ')
  if (unread.length > 0) return [skip(name, `not tried, because only root may read ${unread.join(', ')}: run as root`)]
  if (hosts.length === 0) return [pass(name, `${url}: nothing in the configuration is reached through it`)]
  if (failed.length === 0) return [pass(name, `${url} connects to ${names}`)]
  const remedies = failed.map(({ outcome }) => REMEDIES.find(([words]) => words.test(outcome.text))?.[1] ?? ways)
  const detail = failed.map(({ host, outcome }) => `${host}: ${outcome.text}`).join('; ')
  return [fail(name, detail, [...new Set(remedies)].join('; '))]
}
