// Puts together the watch over other firewalls of this host. Effects: reads with nft and iptables-save; writes the
// journal.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { metricsText } from '../base/prometheus.ts'
import type { Config } from '../config/schema.ts'
import { guardTable } from '../host/network/guard.ts'
import { uplinkInterface } from '../host/network/uplink.ts'
import { lookAtFirewalls } from '../vm/foreign-firewalls/foreign.driver.ts'
import { firewallSite } from '../vm/foreign-firewalls/site.plan.ts'
import { FirewallWatch, type FirewallWatchDeps } from '../vm/foreign-firewalls/watch.ts'

const reads = { timeoutMs: 10_000, outputBytesMax: 1_048_576 } as const

export type WatchedFirewall = {
  readonly watch: FirewallWatch
  readonly start: () => void
  readonly stop: () => Promise<void>
}

export function composeFirewall({
  config,
  clock,
  log,
  onEvent,
}: {
  readonly config: Config
  readonly clock: Clock
  readonly log: Logger
  readonly onEvent: FirewallWatchDeps['onEvent']
}): WatchedFirewall {
  const watch = new FirewallWatch({
    look: () => lookAtFirewalls(reads),
    site: () => firewallSite(config, uplinkInterface()),
    own: new Set([config.network.table, guardTable]),
    clock,
    log: log.unit('firewall'),
    onEvent,
  })
  const stopping = new AbortController()
  let loop: Promise<void> = Promise.resolve()
  return {
    watch,
    start: () => {
      loop = watch.run(stopping.signal)
    },
    stop: () => {
      stopping.abort()
      return loop
    },
  }
}

export function createFirewallMetrics(watch: Pick<FirewallWatch, 'problems'>): { readonly render: () => string } {
  const help = 'Base chains of other firewalls that drop what this appliance needs for certain.'
  return {
    render: () =>
      metricsText([
        {
          name: 'strongroom_foreign_firewall_drops',
          help,
          type: 'gauge',
          samples: [{ labels: {}, value: watch.problems().length }],
        },
      ]),
  }
}
