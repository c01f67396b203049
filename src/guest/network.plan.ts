// Addresses of the one network interface: a routed /32 behind an on-link gateway, as `ip` commands and resolv.conf. Pure.

import type { Network } from '../contract/agent.ts'

/** The first wrong field in words, or null. The schema's pattern lets 999.1.1.1 through. */
export function networkProblem(network: Network): string | null {
  const addresses = { address: [network.address], gateway: [network.gateway], resolvers: network.resolvers }
  for (const [field, values] of Object.entries(addresses)) {
    if (!values.every(isUnicastIpv4)) return `network.${field}: not an IPv4 host address`
  }
  return network.address === network.gateway ? 'network.gateway: the same as the address' : null
}

/** Commands in order, each of which may be repeated. iproute2's ip(8). */
export function planNetwork(network: Network, device: string): string[][] {
  const { address, gateway, mtuBytes } = network
  return [
    ['ip', 'link', 'set', 'dev', device, 'mtu', String(mtuBytes), 'up'],
    ['ip', '-4', 'address', 'flush', 'dev', device],
    ['ip', 'address', 'replace', `${address}/32`, 'dev', device],
    ['ip', 'route', 'replace', `${gateway}/32`, 'dev', device, 'scope', 'link', 'src', address],
    ['ip', 'route', 'replace', 'default', 'via', gateway, 'dev', device, 'src', address],
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
