// Collects the facts about this host's network for `strongroom doctor`: forwarding, firewalls, ports. Effects: reads
// /proc, runs commands that change nothing except the probe's tap and table, which are removed at once.

import { messageOf } from '../../base/fault.ts'
import { systemRandom } from '../../base/ids.ts'
import { linkNames } from '../../base/link-names.ts'
import type { Config } from '../../config/schema.ts'
import { readForwarding } from '../../host/network/forwarding.ts'
import { listListening } from '../../host/network/listening.ts'
import { ForwardProbe } from '../../vm/firewall-probe/probe.driver.ts'
import type { NetworkFacts } from './network.plan.ts'

const commandTimeoutMs = 10_000

/** Never throws. */
export async function collectNetworkFacts(
  config: Config,
  { isRoot }: { readonly isRoot: boolean },
): Promise<NetworkFacts> {
  const { tap_prefix: tapPrefix, pool_v6: poolV6 } = config.network
  const { host: link } = linkNames(tapPrefix)
  const forwarding = readForwarding('ipv4', link)
  const forwardingV6 = readForwarding('ipv6', link)
  const forwards = forwarding.forwards && (poolV6 === '' || forwardingV6.forwards)
  const firewalls = !isRoot ? null : forwards ? await probe(config) : { dropped: [], unknown: notForwarding }
  const listening = await listListening(commandTimeoutMs).catch(messageOf)
  return { forwarding, forwardingV6, firewalls, listening, isRoot }
}

const notForwarding = 'this host forwards nothing yet; the daemon turns it on: start strongroom and ask again'

async function probe(config: Config): Promise<NetworkFacts['firewalls']> {
  const probe = new ForwardProbe({ config, who: 'doctor', random: systemRandom, timeoutMs: commandTimeoutMs })
  try {
    return await probe.look()
  } finally {
    probe.close()
  }
}
