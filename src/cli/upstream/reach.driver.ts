// Whether the gateway reaches the host of an upstream from where it runs. Effects: DNS; reads the interfaces.

import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import type { Config } from '../../config/schema.ts'
import { ownAddresses } from '../../host/network/own-networks.ts'
import { InputFault } from '../../terminal/exit.ts'

type Reach = {
  readonly resolve?: (host: string) => Promise<readonly string[]>
  readonly own?: readonly string[]
}

/** Throws InputFault if the gateway cannot reach the URL, although this host may. */
export async function checkReach(
  { network, inference }: Pick<Config, 'network' | 'inference'>,
  url: string,
  { resolve = resolveAll, own = ownAddresses({ withV6: true }) }: Reach = {},
): Promise<void> {
  const { hostname, port, protocol } = new URL(url)
  const host = hostname.replace(/^\[|\]$/g, '')
  const addresses = isIP(host) === 0 ? await addressesOf(host, resolve) : [host]
  // A gateway on the host uses the host's own network.
  if (inference.placement === 'host' || host === network.gateway_v4) return
  const usable = addresses.filter(address => isIP(address) === 4)
  if (usable.length === 0) {
    throw new InputFault(`${host} has no IPv4 address, and the gateway's VM has no other`, {
      param: 'url',
      remedy: 'give the server an IPv4 address, or a name with one; or set inference.placement = "host"',
    })
  }
  const local = usable.find(address => address.startsWith('127.') || own.includes(address))
  if (local === undefined) return
  const there = `${protocol}//${network.gateway_v4}${port === '' ? '' : `:${port}`}${new URL(url).pathname}`
  throw new InputFault(`${local} is an address of this host, which the firewall closes to the gateway's VM`, {
    param: 'url',
    remedy: `let the server listen on 0.0.0.0 or ${network.gateway_v4}, and give ${there}`,
  })
}

async function addressesOf(host: string, resolve: NonNullable<Reach['resolve']>): Promise<readonly string[]> {
  try {
    return await resolve(host)
  } catch (error) {
    throw new InputFault(`${host} has no address: the resolvers of this host do not have the name`, {
      param: 'url',
      remedy: 'correct the name, or give the address of the server',
      cause: error,
    })
  }
}

async function resolveAll(host: string): Promise<string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address)
}
