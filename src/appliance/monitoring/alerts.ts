// Puts the alerts together: a notifier for each receiver of the configuration. Effects: those of the senders.

import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { version } from '../../base/version.ts'
import type { Config } from '../../config/schema.ts'
import type { AlertReceiver } from '../../contract/admin/alerts.ts'
import type { FoundProblem, HostProblem } from '../../contract/admin/problems.ts'
import { createOutgoing } from '../../linux/net/outgoing.ts'
import { createMail } from '../../operator/alerts/mail.ts'
import { type AlertSender, Notifier } from '../../operator/alerts/notifier.ts'
import type { TestAlerts } from '../../operator/alerts/routes.ts'
import { createWebhook } from '../../operator/alerts/webhook.ts'

export type AlertParts = {
  readonly config: Pick<Config, 'alerts' | 'domain' | 'network'>
  readonly stateDir: string
  readonly hostId: string
  /** Returns the problems that a receiver was notified of before this daemon started. */
  readonly notifiedBefore: (receiver: AlertReceiver) => readonly HostProblem[]
  readonly present: () => readonly HostProblem[]
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

export type ComposedAlerts = {
  readonly problems: () => FoundProblem[]
  readonly test: TestAlerts
  /** Sends until the signal is aborted. Never rejects. */
  readonly run: (signal: AbortSignal) => Promise<void>
}

/** File of the secret in the state directory (host/state-files.ts), where `alerts.webhook_secret_file` names none. */
const secretFileName = 'alerts-secret'

export function composeAlerts(parts: AlertParts): ComposedAlerts {
  const { config, hostId, notifiedBefore, ...shared } = parts
  const { severity, after_s, group_s, repeat_hours } = config.alerts
  const rules = { severity, afterMs: after_s * 1000, groupMs: group_s * 1000, repeatMs: repeat_hours * 3_600_000 }
  const host = { id: hostId, domain: config.domain, version }
  const notifiers = sendersOf(parts).map(
    sender => new Notifier({ ...shared, sender, rules, host, notifiedBefore: () => notifiedBefore(sender.receiver) }),
  )
  return {
    problems: () => notifiers.flatMap(notifier => notifier.problems()),
    test: notifiers.length === 0 ? null : () => Promise.all(notifiers.map(notifier => notifier.test())),
    run: async signal => {
      await Promise.all(notifiers.map(notifier => notifier.run(signal)))
    },
  }
}

function sendersOf({ config: { alerts, network }, stateDir, random, clock }: AlertParts): AlertSender[] {
  const { webhook_url: url, webhook_secret_file: secretFile, webhook_ca_file: caFile } = alerts
  const isOwnSecret = secretFile === ''
  const outgoing = createOutgoing(network.proxy)
  const webhook = { url, secretFile: secretFile || join(stateDir, secretFileName), isOwnSecret, caFile }
  return [
    ...(url === '' ? [] : [createWebhook(webhook, { random, clock, outgoing })]),
    ...(alerts.smtp_server === '' ? [] : [createMail(alerts)]),
  ]
}
