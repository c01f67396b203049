// The addresses of probes of other firewalls (firewall-probe/). Pure.

import { formatIpv4, rangeOf } from '../../base/ipv4.ts'
import { formatIpv6, rangeOfV6 } from '../../base/ipv6.ts'

/** Returns the address of a pool that a probe uses: the first or the last, which no VM gets (vm/launch.plan.ts). */
export function probeAddress(pool: string, which: 'first' | 'last'): string {
  return pool.includes(':') ? formatIpv6(rangeOfV6(pool)[which]) : formatIpv4(rangeOf(pool)[which])
}
