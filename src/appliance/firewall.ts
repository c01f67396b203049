// Puts together the watch over other firewalls of this host. Effects: the probe's packets; writes the journal.

import type { Clock } from '../base/clock.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { metricsText } from '../base/prometheus.ts'
import type { Config } from '../config/schema.ts'
import { ForwardProbe } from '../vm/firewall-probe/probe.driver.ts'
import { FirewallWatch, type FirewallWatchDeps } from '../vm/firewall-probe/watch.ts'
import type { VmNetwork } from '../vm/network/network.driver.ts'

const timeoutMs = 10_000

export type WatchedFirewall = {
  readonly watch: FirewallWatch
  readonly start: () => void
  readonly stop: () => Promise<void>
}

export function composeFirewall({
  config,
  network,
  clock,
  random,
  log,
  onEvent,
}: {
  readonly config: Config
  readonly network: Pick<VmNetwork, 'sync'>
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  readonly onEvent: FirewallWatchDeps['onEvent']
}): WatchedFirewall {
  const probe = new ForwardProbe({ config, who: 'daemon', random, timeoutMs })
  const look = () => probe.look()
  const watch = new FirewallWatch({ config, look, clock, log: log.unit('firewall'), onEvent })
  const stopping = new AbortController()
  let loop: Promise<void> = Promise.resolve()
  return {
    watch,
    start: () => {
      // The table of an earlier release drops the probe.
      const begun = network.sync().catch(() => {})
      loop = begun.then(() => watch.run(stopping.signal))
    },
    stop: async () => {
      stopping.abort()
      await loop
      probe.close()
    },
  }
}

export function createFirewallMetrics(watch: Pick<FirewallWatch, 'droppedCount'>): { readonly render: () => string } {
  const help = 'Kinds of packets of instances that other firewalls of this host drop.'
  return {
    render: () =>
      metricsText([
        {
          name: 'strongroom_foreign_firewall_drops',
          help,
          type: 'gauge',
          samples: [{ labels: {}, value: watch.droppedCount() }],
        },
      ]),
  }
}
