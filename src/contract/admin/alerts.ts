// Alerts: the message that a webhook gets, and the answer of `strongroom alerts test`. Pure.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { HostProblem } from './problems.ts'

const Time = Type.String({ description: 'ISO 8601 UTC' })

export const ALERT_RECEIVERS = ['webhook', 'email'] as const
export type AlertReceiver = (typeof ALERT_RECEIVERS)[number]

/** Problems of one kind in a message. No share: limits one message. */
export const alertProblemsMax = 50

const Problems = Type.Array(HostProblem, { maxItems: alertProblemsMax })

/** `reminder`: critical problems last. `test`: nothing has changed. */
export const AlertMessage = Closed({
  version: Type.Literal(1),
  id: Type.String(),
  kind: OneOf(['problems', 'reminder', 'test']),
  at: Time,
  host: Closed({ id: Type.String(), domain: Type.String(), version: Type.String() }),
  ready: Type.Boolean(),
  /** Problems that began, or became critical, since the last message. */
  began: Problems,
  /** Problems that have ended, in their last form. */
  resolved: Problems,
  /** All problems of this host, those that began included. */
  open: Problems,
  /** How many problems these lists leave out. */
  omitted: Type.Integer({ minimum: 0 }),
})
export type AlertMessage = Static<typeof AlertMessage>

export const AdminAlertsTest = Closed({
  results: Type.Array(
    Closed({
      receiver: OneOf(ALERT_RECEIVERS),
      ok: Type.Boolean(),
      /** Where it was sent to, or why it was not taken. */
      detail: Type.String(),
      /** Null if it was taken. */
      remedy: OrNull(Type.String()),
    }),
    { maxItems: ALERT_RECEIVERS.length },
  ),
})
export type AdminAlertsTest = Static<typeof AdminAlertsTest>
