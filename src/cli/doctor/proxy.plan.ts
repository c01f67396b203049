// The check of the proxy for outgoing requests in `strongroom doctor`. Pure.

import { type Check, fail, type Outcome, pass } from './check.ts'

export type ProxyFacts = {
  readonly url: string
  /** Hosts that the daemon reaches through it. */
  readonly hosts: readonly { readonly host: string; readonly outcome: Outcome }[]
}

const name = 'proxy'
const remedy =
  'let the proxy connect to these hosts, or name those that this host reaches by itself in network.proxy.no_proxy'

export function proxyChecks(facts: ProxyFacts | null): Check[] {
  if (facts === null) return []
  const { url, hosts } = facts
  const failed = hosts.filter(({ outcome }) => !outcome.ok)
  const names = hosts.map(({ host }) => host).join(', ')
  if (hosts.length === 0) return [pass(name, `${url}: nothing in the configuration is reached through it`)]
  if (failed.length === 0) return [pass(name, `${url} leads to ${names}`)]
  return [fail(name, failed.map(({ host, outcome }) => `${host}: ${outcome.text}`).join('; '), remedy)]
}
