// A relying party's list of the events that may extend the RTMRs of a TD. Pure.

import { equalConstantTime, toHex, utf8 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import { hex, type Kind, listOf, object, oneOf, orAny, policyListCountMax, type Valued } from '../policy/kinds.ts'
import { type Check, check, notChecked } from '../verdict.ts'
import { replayRtmrs, type TdxEvent } from './event-log.ts'

const format = 'strongroom/tdx-events/v1'
const alternatives = listOf(hex(48))
/** Each inner list has the accepted digests of one event. Unlike in other lists, an entry may be there twice. */
const sequence: Kind<readonly (readonly Uint8Array[])[]> = {
  schema: { type: 'array', items: alternatives.schema, minItems: 1, maxItems: policyListCountMax },
  parse: (value, path) => {
    const fits = Array.isArray(value) && value.length >= 1 && value.length <= policyListCountMax
    wellFormed(fits, `${path}: not a list of 1 to ${policyListCountMax}`)
    return value.map((entry, at) => alternatives.parse(entry, `${path}[${at}]`))
  },
}
const events = orAny(sequence)

export const RTMR_NAMES = ['rtmr0', 'rtmr1', 'rtmr2', 'rtmr3'] as const

/** 'any' skips a register. A listed one has exactly the listed events, in their order. */
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
    const fault = firstFault(named, found)
    return fault === null ? [] : [`RTMR ${rtmr}: event ${fault}`]
  })
  const names = RTMR_NAMES.filter(name => policy[name] !== 'any')
  if (names.length === 0) return notChecked(eventsCheckName, 'the file names no event', false)
  return check(
    eventsCheckName,
    faults.length === 0,
    faults.join('; '),
    `the events of ${names.join(', ')} are those that you named`,
  )
}

/** Compares event by event, because the order and the number of events decide a register. Null without a fault. */
function firstFault(named: readonly (readonly Uint8Array[])[], found: readonly TdxEvent[]): string | null {
  for (let at = 0; at < Math.max(named.length, found.length); at += 1) {
    const [accepted, digest] = [named[at], found[at]?.digest]
    const first = accepted?.[0] === undefined ? '' : toHex(accepted[0])
    if (digest === undefined) return `${at + 1}, as ${first}, is missing`
    if (accepted === undefined) return `${at + 1}, ${toHex(digest)}, is not named`
    if (accepted.some(other => equalConstantTime(other, digest))) continue
    return `${at + 1}, ${toHex(digest)}, is not among those named there, as ${first}`
  }
  return null
}

function isReplayed(rtmr: number, replayed: readonly Uint8Array[], quoted: readonly Uint8Array[]): boolean {
  const [value, expected] = [replayed[rtmr], quoted[rtmr]]
  return value !== undefined && expected !== undefined && equalConstantTime(value, expected)
}
