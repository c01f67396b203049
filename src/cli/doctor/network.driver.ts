// Collects the facts about this host's network for `strongroom doctor`: forwarding, firewalls, ports. Effects: reads
// /proc, runs commands that change nothing.

import { messageOf } from '../../base/fault.ts'
import type { Config } from '../../config/schema.ts'
import { lookAtForwarding } from '../../host/network/forwarding.ts'
import { guardTable } from '../../host/network/guard.ts'
import { listListening } from '../../host/network/listening.ts'
import { uplinkInterface } from '../../host/network/uplink.ts'
import { lookAtFirewalls } from '../../vm/foreign-firewalls/foreign.driver.ts'
import type { NetworkFacts } from './network.plan.ts'

const commandTimeoutMs = 10_000
const outputBytesMax = 67_108_864

/** Never throws. */
export async function lookAtNetwork(
  { network }: Config,
  { isRoot }: { readonly isRoot: boolean },
): Promise<NetworkFacts> {
  const { table, tap_prefix: tapPrefix } = network
  const timeoutMs = commandTimeoutMs
  const forwardingOf = (family: 'ipv4' | 'ipv6') =>
    isRoot ? lookAtForwarding({ family, table, tapPrefix, timeoutMs }).catch(messageOf) : null
  const [forwarding, forwardingV6, firewalls, listening] = await Promise.all([
    forwardingOf('ipv4'),
    forwardingOf('ipv6'),
    isRoot ? lookAtFirewalls({ timeoutMs, outputBytesMax }) : null,
    listListening(timeoutMs).catch(messageOf),
  ])
  const ownTables = new Set([table, guardTable])
  return { forwarding, forwardingV6, firewalls, ownTables, uplink: uplinkInterface(), listening, isRoot }
}
