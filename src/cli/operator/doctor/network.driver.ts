// Collects what `strongroom doctor` judges of this host's network: forwarding, firewalls, ports. Effects: reads /proc, runs commands that change
// nothing.

import { readFileSync } from 'node:fs'
import { messageOf } from '../../../base/fault.ts'
import type { Config } from '../../../config/schema.ts'
import { guardTable } from '../../../host/network/guard.ts'
import { listListening } from '../../../host/network/listening.ts'
import { uplinkInterface } from '../../../host/network/uplink.ts'
import { lookAtFirewalls } from '../../../vm/firewall/foreign.driver.ts'
import type { NetworkFacts } from './network.plan.ts'

const commandTimeoutMs = 10_000
const outputBytesMax = 67_108_864

/** Never throws. */
export async function lookAtNetwork(
  { network }: Config,
  { isRoot }: { readonly isRoot: boolean },
): Promise<NetworkFacts> {
  const [firewalls, listening] = await Promise.all([
    isRoot ? lookAtFirewalls({ timeoutMs: commandTimeoutMs, outputBytesMax }) : null,
    listListening(commandTimeoutMs).catch(messageOf),
  ])
  const ownTables = new Set([network.table, guardTable])
  return { forwards: forwards(), firewalls, ownTables, uplink: uplinkInterface(), listening, isRoot }
}

/** IPv4 (Documentation/networking/ip-sysctl.rst, ip_forward); null: it cannot be read. */
function forwards(): boolean | null {
  try {
    return readFileSync('/proc/sys/net/ipv4/ip_forward', 'utf8').trim() === '1'
  } catch {
    return null
  }
}
