// Collects the facts about this host's network for `strongroom doctor`: forwarding, firewalls, ports, the identity
// provider. Effects: reads /proc, one request to the provider; runs commands that change nothing except the probe's tap
// and table, which are removed at once.

import { systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { systemRandom } from '../../base/ids.ts'
import { linkNames } from '../../base/link-names.ts'
import type { Config } from '../../config/schema.ts'
import { Provider } from '../../console/oidc/provider.ts'
import { readForwarding } from '../../host/network/forwarding.ts'
import { listListening } from '../../host/network/listening.ts'
import { createOutgoing } from '../../linux/net/outgoing.ts'
import { ForwardProbe } from '../../vm/firewall-probe/probe.driver.ts'
import { outcomeOf } from './check.ts'
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
  const { oidc } = config.console
  const provider = oidc.issuer === '' ? null : await outcomeOf(() => checkProvider(config, { isRoot }))
  return { forwarding, forwardingV6, firewalls, listening, isRoot, provider }
}

/** Returns what the provider has. Throws if it does not answer with keys, or, as root, the secret cannot be read. */
async function checkProvider({ console, network }: Config, { isRoot }: { readonly isRoot: boolean }): Promise<string> {
  const provider = new Provider({ config: console.oidc, send: createOutgoing(network.proxy), clock: systemClock })
  if (isRoot) provider.secret()
  const { issuer, id_token_signing_alg_values_supported: algorithms = [] } = await provider.discover()
  const keyCount = await provider.keyCount()
  return `${issuer} answers, keys: ${keyCount}, algorithms: ${algorithms.join(', ')}`
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
