// Notifies one receiver of problems: gathers changes into one message, and retries it until it is taken. The journal
// records what was taken, so that a restart repeats and loses nothing. Effects: the sender, the journal.

import { type Clock, iso } from '../../base/clock.ts'
import { messageOf as errorText } from '../../base/fault.ts'
import { newUuid, type RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { sweep } from '../../base/work/sweep.ts'
import type { AdminAlertsTest, AlertMessage, AlertReceiver } from '../../contract/admin/alerts.ts'
import { type FoundProblem, type HostProblem, problemKey } from '../../contract/admin/problems.ts'
import { ALERT_SENT } from '../problems/journal.ts'
import { type AlertChanges, type AlertRules, changesFor, messageOf } from './message.plan.ts'

export type AlertSender = {
  readonly receiver: AlertReceiver
  /** Where it sends to, without secrets. */
  readonly target: string
  /** Rejects with the reason if the message is not taken. */
  readonly send: (message: AlertMessage, signal: AbortSignal) => Promise<void>
}

export type NotifierDeps = {
  readonly sender: AlertSender
  readonly rules: AlertRules & { readonly groupMs: number; readonly repeatMs: number }
  readonly host: AlertMessage['host']
  /** Returns the problems of this host that the log has. */
  readonly present: () => readonly HostProblem[]
  /** Problems that the receiver was notified of before this daemon started. */
  readonly notifiedBefore: () => readonly HostProblem[]
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  /** Writes an entry to the journal. Never throws. */
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

const tickMs = 5_000
const retryMinMs = 10_000
const retryMaxMs = 900_000
/** After this number of attempts a newer message replaces it. */
const attemptsMax = 12
/** The receiver becomes a problem itself after so many failures. */
const failuresToProblem = 3
const testTimeoutMs = 45_000

type Pending = { readonly message: AlertMessage; readonly changes: AlertChanges; attempts: number }

export class Notifier {
  readonly #deps: NotifierDeps
  #notified: Map<string, HostProblem> | null = null
  #pending: Pending | null = null
  /** Monotonic times: when the first change of the next message was noticed, and the earliest next attempt. */
  #noticedMs: number | null = null
  #nextMs = 0
  #sentMs: number
  #failures: { count: number; sinceMs: number; reason: string } | null = null

  constructor(deps: NotifierDeps) {
    this.#deps = deps
    this.#sentMs = deps.clock.monotonicMs()
  }

  /** Sends until the signal is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps
    await sweep({ clock, intervalMs: tickMs, signal }, async () => {
      try {
        await this.tick(signal)
      } catch (error) {
        if (!signal.aborted) log.error('alerts were not looked at', { error })
      }
    })
  }

  /** Sends a message now if one is due. */
  async tick(signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    this.#pending ??= this.#nextMessage()
    if (this.#pending !== null && clock.monotonicMs() >= this.#nextMs) await this.#attempt(this.#pending, signal)
  }

  /** Sends a test, once. Never rejects. */
  async test(): Promise<AdminAlertsTest['results'][number]> {
    const { sender } = this.#deps
    const message = this.#messageFor('test', { began: [], resolved: [] })
    try {
      await sender.send(message, AbortSignal.timeout(testTimeoutMs))
      return { receiver: sender.receiver, ok: true, detail: sender.target, remedy: null }
    } catch (error) {
      const detail = `${sender.target}: ${errorText(error)}`
      return { receiver: sender.receiver, ok: false, detail, remedy: REMEDIES[sender.receiver] }
    }
  }

  /** The receiver as a problem, if it does not take messages. */
  problems(): FoundProblem[] {
    const { sender } = this.#deps
    if (this.#failures === null || this.#failures.count < failuresToProblem) return []
    const { count, sinceMs, reason } = this.#failures
    return [
      {
        ...{ name: 'alerts', subject: sender.receiver, severity: 'warning', sinceMs },
        detail: `${sender.receiver} has not taken the last ${count} messages: ${reason}`,
        remedy: `${REMEDIES[sender.receiver]}; \`strongroom alerts test\` tries again at once`,
      },
    ]
  }

  /** Returns the next message once its changes are gathered; null if none is due. */
  #nextMessage(): Pending | null {
    const { clock, rules } = this.#deps
    const present = this.#present()
    const changes = changesFor(this.#known(), present, rules, clock.nowMs())
    const nowMs = clock.monotonicMs()
    if (changes.began.length + changes.resolved.length === 0) {
      this.#noticedMs = null
      const isCritical = present.some(({ severity }) => severity === 'critical')
      const isDue = rules.repeatMs > 0 && nowMs - this.#sentMs >= rules.repeatMs
      return isCritical && isDue ? this.#pendingOf('reminder', changes) : null
    }
    this.#noticedMs ??= nowMs
    return nowMs - this.#noticedMs >= rules.groupMs ? this.#pendingOf('problems', changes) : null
  }

  async #attempt(pending: Pending, signal: AbortSignal): Promise<void> {
    const { sender, clock, log } = this.#deps
    pending.attempts += 1
    try {
      await sender.send(pending.message, signal)
    } catch (error) {
      if (!signal.aborted) this.#noteFailure(pending, errorText(error))
      return
    }
    if (this.#failures !== null) log.info('alerts are taken again', { receiver: sender.receiver })
    this.#failures = null
    this.#pending = null
    this.#noticedMs = null
    this.#nextMs = 0
    this.#sentMs = clock.monotonicMs()
    this.#note(pending)
  }

  #noteFailure(pending: Pending, reason: string): void {
    const { sender, clock, log } = this.#deps
    const failures = this.#failures ?? { count: 0, sinceMs: clock.nowMs(), reason }
    this.#failures = { ...failures, count: failures.count + 1, reason }
    const delayMs = Math.min(retryMaxMs, retryMinMs * 2 ** Math.min(20, this.#failures.count - 1))
    this.#nextMs = clock.monotonicMs() + delayMs
    if (failures.count === 0)
      log.warn('an alert was not taken; it will be sent again', { receiver: sender.receiver, reason })
    if (pending.attempts >= attemptsMax) this.#pending = null
  }

  /** Records the changes that the receiver has taken. */
  #note({ message: { id, kind }, changes: { began, resolved } }: Pending): void {
    const { sender, onEvent, log } = this.#deps
    const known = this.#known()
    for (const problem of resolved) known.delete(problemKey(problem))
    for (const problem of began) known.set(problemKey(problem), problem)
    log.info('alert sent', { receiver: sender.receiver, id, kind, began: began.length, resolved: resolved.length })
    if (began.length + resolved.length > 0)
      onEvent(ALERT_SENT, { receiver: sender.receiver, began: began.map(short), resolved: resolved.map(short) })
  }

  /** The receiver is not notified of its own failure: that message would need it. */
  #present(): readonly HostProblem[] {
    const { receiver } = this.#deps.sender
    return this.#deps.present().filter(({ name, subject }) => name !== 'alerts' || subject !== receiver)
  }

  #known(): Map<string, HostProblem> {
    this.#notified ??= new Map(this.#deps.notifiedBefore().map(problem => [problemKey(problem), problem]))
    return this.#notified
  }

  #pendingOf(kind: AlertMessage['kind'], changes: AlertChanges): Pending {
    // More than a message holds follows in the next one.
    const began = changes.began.slice(0, changesMax)
    const resolved = changes.resolved.slice(0, changesMax)
    const some = { began, resolved }
    return { message: this.#messageFor(kind, some), changes: some, attempts: 0 }
  }

  #messageFor(kind: AlertMessage['kind'], changes: AlertChanges): AlertMessage {
    const { host, clock, random } = this.#deps
    const id = `msg_${newUuid(random)}`
    return messageOf({ id, kind, at: iso(clock.nowMs()), host, present: this.#present(), changes })
  }
}

/** No share: limits one message. */
const changesMax = 50

const REMEDIES = {
  webhook:
    'see that this host reaches alerts.webhook_url, and that its receiver accepts the signature (alerts.webhook_secret_file)',
  email:
    'see that this host reaches alerts.smtp_server, that its certificate is trusted (alerts.smtp_ca_file), and that user and password are right',
} as const satisfies Record<AlertReceiver, string>

const detailCharsMax = 300

function short({ name, subject, severity, since, detail }: HostProblem) {
  return { name, subject, severity, since, detail: detail.slice(0, detailCharsMax) }
}
