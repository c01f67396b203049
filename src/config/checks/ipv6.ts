// Contradictions in the configuration of instances' address families. Pure.

import { canonicalNetworkV6, coversV6, formatIpv6, parseIpv6, rangeOfV6 } from '../../base/ipv6.ts'
import { isHexIpv6, isNetworkV6, NEVER_FORWARDED_V6 } from '../egress-v6.ts'
import { poolV6Allowed } from '../fields.ts'
import { parseListen } from '../listen.ts'
import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

/** Never fewer addresses than the largest IPv4 pool has, and no more than an organization has of one site. */
const prefixLengths = { min: 48, max: 112 } as const
/** RFC 8200 5. */
const mtuMin = 1280

/** All of them. */
export function familyProblems(config: Config): CrossProblem[] {
  const { network } = config
  return [
    ...(network.pool_v4 === '' ? problemsWithoutV4(config) : []),
    ...(network.pool_v6 === '' ? [] : poolProblems(network.pool_v6)),
    ...gatewayProblems(network),
    ...publicProblems(network),
    ...when(network.pool_v6 !== '' && network.mtu_bytes < mtuMin, {
      field: 'network.mtu_bytes',
      message: `${network.mtu_bytes} is below ${mtuMin}, which IPv6 needs (pool_v6 is "${network.pool_v6}")`,
    }),
    ...network.resolvers.flatMap((resolver, index) =>
      resolverProblems(resolver, network).map(message => ({ field: `network.resolvers.${index}`, message })),
    ),
  ]
}

/** Settings that need IPv4 are refused without its pool. */
function problemsWithoutV4({ network, listen, inference, instances }: Config): CrossProblem[] {
  const inferenceHost = parseListen(listen.inference)?.hostname ?? ''
  return [
    ...when(network.pool_v6 === '', {
      field: 'network.pool_v4',
      message: 'pool_v4 and pool_v6 are both "": instances would have no address; set one of them',
    }),
    ...when(listen.builds !== '', {
      field: 'listen.builds',
      message: 'VMs that build have IPv4 alone, and network.pool_v4 is ""; set that, or turn service C off with ""',
    }),
    ...when(listen.inference !== '' && inference.placement === 'vm', {
      field: 'inference.placement',
      message: 'the VMs of the gateway have IPv4 alone, and network.pool_v4 is ""; set that, or use another placement',
    }),
    ...when(inferenceHost !== '' && !inferenceHost.includes(':') && instances.inference_base_url === '', {
      field: 'listen.inference',
      message: `${listen.inference} takes IPv4 alone, which instances do not have (network.pool_v4 is ""); use an address like "[::]:8442"`,
    }),
  ]
}

function poolProblems(pool: string): CrossProblem[] {
  const problem = (message: string): CrossProblem[] => [{ field: 'network.pool_v6', message }]
  const length = Number(pool.split('/')[1])
  if (!isNetworkV6(pool) || length < prefixLengths.min || length > prefixLengths.max)
    return problem(`${JSON.stringify(pool)} is not allowed; allowed: ${poolV6Allowed}`)
  const canonical = canonicalNetworkV6(pool)
  if (canonical !== pool)
    return problem(`${pool} is not in its short form, without bits after its prefix; write ${canonical}`)
  if (!isUnicast(pool)) return problem(`${pool} has no addresses that instances can have; use a unicast network`)
  return []
}

function gatewayProblems({ gateway_v6: gateway, pool_v6: pool }: Config['network']): CrossProblem[] {
  const problem = (message: string): CrossProblem[] => [{ field: 'network.gateway_v6', message }]
  if (!isHexIpv6(gateway))
    return problem(
      `${JSON.stringify(gateway)} is not allowed; allowed: an IPv6 address in hexadecimal, not a link-local one`,
    )
  const short = formatIpv6(parseIpv6(gateway))
  if (short !== gateway) return problem(`${gateway} is not in its short form; write ${short}`)
  if (!isUnicast(gateway)) return problem(`${gateway} is not an address that instances can reach by its name`)
  if (isInPool(gateway, pool))
    return problem(`${gateway} is in pool_v6 (${pool}), whose addresses instances get; choose one outside it`)
  return []
}

function publicProblems({ public_v6: address, pool_v6: pool }: Config['network']): CrossProblem[] {
  const problem = (message: string): CrossProblem[] => [{ field: 'network.public_v6', message }]
  if (address === '') return []
  if (!isHexIpv6(address))
    return problem(`${JSON.stringify(address)} is not allowed; allowed: "" or an IPv6 address in hexadecimal`)
  if (!isUnicast(address)) return problem(`${address} is not an address that clients can reach`)
  if (isInPool(address, pool))
    return problem(`${address} is in pool_v6 (${pool}), whose addresses instances get; use the address of this host`)
  return []
}

function resolverProblems(resolver: string, { pool_v4, pool_v6 }: Config['network']): string[] {
  if (!resolver.includes(':')) {
    return pool_v4 === ''
      ? [
          `${resolver} is an IPv4 address, and instances have none (pool_v4 is ""); write IPv6 ones, such as "2620:fe::9"`,
        ]
      : []
  }
  if (!isHexIpv6(resolver)) return [`${JSON.stringify(resolver)} is not allowed; allowed: an IP address`]
  if (pool_v6 === '') return [`${resolver} is an IPv6 address, and instances have none (pool_v6 is "")`]
  return isInPool(resolver, pool_v6) ? [`${resolver} is in pool_v6 (${pool_v6}), whose addresses instances get`] : []
}

/** A pool that is none has its own problem. */
function isInPool(address: string, pool: string): boolean {
  return isNetworkV6(pool) && coversV6(rangeOfV6(pool), rangeOfV6(address))
}

function isUnicast(network: string): boolean {
  return !NEVER_FORWARDED_V6.some(closed => coversV6(rangeOfV6(closed), rangeOfV6(network)))
}

function when(wrong: boolean, problem: CrossProblem): CrossProblem[] {
  return wrong ? [problem] : []
}
