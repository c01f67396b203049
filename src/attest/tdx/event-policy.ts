// A relying party's list of the events that may extend the RTMRs of a TD. Pure.

import { equalConstantTime, toHex, utf8 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { hex, listOf, object, oneOf, orAny, type Valued } from '../policy/kinds.ts'
import { type Check, check, notChecked } from '../verdict.ts'
import { replayRtmrs, type TdxEvent } from './event-log.ts'

const format = 'strongroom/tdx-events/v1'
/** Each inner list has the accepted digests of one event. */
const events = orAny(listOf(listOf(hex(48))))

export const RTMR_NAMES = ['rtmr0', 'rtmr1', 'rtmr2', 'rtmr3'] as const

/** 'any' skips a register. A listed one has no other events, and each of the listed at least once. */
const policyKind = object({
  format: { ...oneOf([format]), schema: { const: format }, remedy: `write "${format}"` },
  rtmr0: events,
  rtmr1: events,
  rtmr2: events,
  rtmr3: events,
})

export type TdxEventPolicy = Valued<typeof policyKind>

/** Parses a policy given as text or bytes. Throws Malformed. */
export function parseTdxEventPolicy(json: string | Uint8Array): TdxEventPolicy {
  return policyKind.parse(parsedJson('events', typeof json === 'string' ? utf8(json) : json), 'events')
}

export const eventLogCheckName = 'event-log'
export const eventsCheckName = 'event-policy'

/** Checks that the log replays to every register that it extends. */
export function eventLogCheck(log: readonly TdxEvent[], quoted: readonly Uint8Array[]): Check {
  const replayed = replayRtmrs(log)
  const used = [...new Set(log.map(({ rtmr }) => rtmr))].toSorted()
  const wrong = used.filter(rtmr => !isReplayed(rtmr, replayed, quoted))
  const numbers = (rtmrs: readonly number[]) => rtmrs.join(', ')
  return check(
    eventLogCheckName,
    wrong.length === 0 && used.length > 0,
    used.length === 0 ? 'the log has no event' : `the log does not replay to RTMR ${numbers(wrong)}`,
    `${log.length} events replay to RTMR ${numbers(used)}`,
  )
}

/** Compares the events with the policy, register by register. A register that the log does not explain fails. */
export function eventPolicyCheck(
  policy: TdxEventPolicy,
  log: readonly TdxEvent[],
  quoted: readonly Uint8Array[],
): Check {
  const replayed = replayRtmrs(log)
  const faults = RTMR_NAMES.flatMap((name, rtmr) => {
    const named = policy[name]
    if (named === 'any') return []
    if (!isReplayed(rtmr, replayed, quoted)) return [`the log does not replay to RTMR ${rtmr}`]
    const found = log.filter(event => event.rtmr === rtmr)
    const isIn = (digests: readonly Uint8Array[], { digest }: TdxEvent) =>
      digests.some(accepted => equalConstantTime(accepted, digest))
    const strange = found.filter(event => !named.some(digests => isIn(digests, event)))
    const missing = named.filter(digests => !found.some(event => isIn(digests, event)))
    const words = (digests: readonly (Uint8Array | undefined)[]) =>
      digests.map(digest => toHex(digest ?? new Uint8Array()))
    return [
      ...words(strange.map(({ digest }) => digest)).map(digest => `RTMR ${rtmr}: event ${digest} is not named`),
      ...words(missing.map(([first]) => first)).map(digest => `RTMR ${rtmr}: event ${digest} is missing`),
    ]
  })
  const names = RTMR_NAMES.filter(name => policy[name] !== 'any')
  if (names.length === 0) return notChecked(eventsCheckName, 'the file names no event', false)
  const shown = [...faults.slice(0, 8), ...(faults.length > 8 ? [`${faults.length - 8} more`] : [])].join('; ')
  return check(
    eventsCheckName,
    faults.length === 0,
    shown,
    `the events of ${names.join(', ')} are those that you named`,
  )
}

function isReplayed(rtmr: number, replayed: readonly Uint8Array[], quoted: readonly Uint8Array[]): boolean {
  const [value, expected] = [replayed[rtmr], quoted[rtmr]]
  return value !== undefined && expected !== undefined && equalConstantTime(value, expected)
}
