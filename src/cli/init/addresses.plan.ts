// Checks of an answer that names an address of this host, before the questions that depend on it. Pure.

import { canonicalNetwork, containsRange, rangeOf } from '../../base/ipv4.ts'
import { canonicalNetworkV6, coversV6, rangeOfV6 } from '../../base/ipv6.ts'
import { type ListenAddress, listenOverlap, parseListen } from '../../config/listen.ts'
import type { Listening } from '../../host/network/listening.ts'

export type AddressFacts = {
  /** Addresses of this host's interfaces, without loopback and link-local ones. */
  readonly own: readonly string[]
  /** Whether a service listens on all addresses, so that its name needs an address from elsewhere. */
  readonly listensOnAll: boolean
  /** IPv4 address of the default route's interface; null if there is none, or several. */
  readonly routeV4: string | null
  /** Sockets that wait for clients; null if they are not known. */
  readonly listening: readonly Listening[] | null
  /** Process of the running daemon, whose sockets become free; null if it does not run. */
  readonly daemonPid: number | null
}

/** `refused`: it cannot work. `remark`: it works under a condition. */
export type AddressVerdict = { readonly kind: 'good' } | { readonly kind: 'refused' | 'remark'; readonly text: string }

const good: AddressVerdict = { kind: 'good' }

/** Judges an answer that the schema accepts. `field`: dotted path. */
export function addressVerdict(field: string, answer: string, facts: AddressFacts): AddressVerdict {
  switch (field) {
    case 'network.public_v4':
      return publicVerdict(answer, facts, facts.routeV4)
    case 'network.public_v6':
      return publicVerdict(answer, facts, null)
    case 'network.pool_v4':
      return answer === '' ? good : poolVerdict(answer, facts)
    case 'network.pool_v6':
      return answer === '' ? good : poolV6Verdict(answer, facts)
    default:
      return field.startsWith('listen.') && answer !== '' ? listenVerdict(answer, facts) : good
  }
}

function publicVerdict(answer: string, facts: AddressFacts, fallback: string | null): AddressVerdict {
  const { own, listensOnAll } = facts
  if (answer === '') {
    if (!listensOnAll) return good
    return fallback === null
      ? refused('this host has no default route with one such address; type the address at which clients reach it')
      : { kind: 'remark', text: `that is ${fallback}` }
  }
  if (own.includes(answer)) return good
  const text = `no interface of this host has ${answer}; that is right only behind a NAT that leads it here`
  return { kind: 'remark', text }
}

function poolVerdict(pool: string, { own }: AddressFacts): AddressVerdict {
  if (canonicalNetwork(pool) !== pool)
    return refused(`it has bits set after its prefix; type ${canonicalNetwork(pool)}`)
  const inside = own.find(address => !address.includes(':') && containsRange(rangeOf(pool), rangeOf(address)))
  return inside === undefined ? good : refused(ownText(inside))
}

function poolV6Verdict(pool: string, { own }: AddressFacts): AddressVerdict {
  if (!/^[0-9a-f:]+\/[0-9]+$/.test(pool)) return good
  if (canonicalNetworkV6(pool) !== pool) return refused(`type it as ${canonicalNetworkV6(pool)}`)
  const inside = own.find(address => address.includes(':') && coversV6(rangeOfV6(pool), rangeOfV6(address)))
  return inside === undefined ? good : refused(ownText(inside))
}

function ownText(address: string): string {
  return `it contains ${address}, an address of this host, which instances would get; take a network of its own`
}

const ANY = ['0.0.0.0', '::']

function listenVerdict(answer: string, { own, listening, daemonPid }: AddressFacts): AddressVerdict {
  const address = parseListen(answer)
  // The schema's own check has words for it.
  if (address === null) return good
  const { hostname } = address
  const isOwn = ANY.includes(hostname) || hostname === '::1' || hostname.startsWith('127.') || own.includes(hostname)
  if (!isOwn) return refused(`no interface of this host has ${hostname}; it has ${own.join(', ') || 'no address'}`)
  const holder = (listening ?? []).find(
    socket =>
      socket.protocol === 'tcp' &&
      socket.holders.every(({ pid }) => pid !== daemonPid) &&
      (socket.holders.length > 0 || daemonPid === null) &&
      listenOverlap(address, addressOf(socket)),
  )
  if (holder === undefined) return good
  const who = holder.holders[0]
  const name = who === undefined ? 'another program' : `${who.name} (process ${who.pid})`
  return refused(`${name} has port ${address.port} already; stop it, or take another port`)
}

function addressOf({ host, port }: Listening): ListenAddress {
  return { hostname: host === '*' ? '::' : host, port }
}

function refused(text: string): AddressVerdict {
  return { kind: 'refused', text }
}
