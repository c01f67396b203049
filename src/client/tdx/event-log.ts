// The event log of a TD, and the events that a relying party names: options of `verify tdx`. Effects: reads files.
// Throws InputFault.

import { decodeTdxEventLog, isTdxDataMeasured, type TdxEvent, tdxEventLogBytesMax } from '../../attest/tdx/event-log.ts'
import {
  eventLogCheck,
  eventPolicyCheck,
  parseTdxEventPolicy,
  type TdxEventPolicy,
} from '../../attest/tdx/event-policy.ts'
import type { TdxQuote } from '../../attest/tdx/quote.ts'
import { type Check, verdict } from '../../attest/verdict.ts'
import { toHex } from '../../base/bytes.ts'
import type { Command } from '../../terminal/command.ts'
import { MIB, readInput, readingInput } from '../../terminal/input-file.ts'
import { required } from '../../terminal/options.ts'
import { hexNumber } from '../../terminal/render.ts'

export type EventOptions = { eventLog?: string; events?: string }

/** A log, and the policy for its events or null. */
export type EventInput = { readonly log: readonly TdxEvent[]; readonly policy: TdxEventPolicy | null }

export function addEventOptions(command: Command): Command {
  return command
    .option('--event-log <file>', 'event log of the TD (/sys/firmware/acpi/tables/data/CCEL), replayed to the RTMRs')
    .option('--events <file>', 'JSON of the events that may extend the RTMRs, as in `help tdx`; needs --event-log')
}

/** Null without a log. */
export async function readEvents({ eventLog, events }: EventOptions): Promise<EventInput | null> {
  const path = events === undefined ? eventLog : required('event-log', eventLog)
  if (path === undefined) return null
  const bytes = readInput({ path, param: 'event-log', bytesMax: tdxEventLogBytesMax })
  const log = await readingInput(`--event-log ${path}`, () => decodeTdxEventLog(bytes))
  if (events === undefined) return { log, policy: null }
  const json = readInput({ path: events, param: 'events', bytesMax: MIB })
  return { log, policy: await readingInput(`--events ${events}`, () => parseTdxEventPolicy(json)) }
}

/** Returns the checks of the log. The quote's own checks decide whether its registers are genuine. */
export function eventChecks(input: EventInput | null, quote: TdxQuote | null): Check[] {
  if (input === null || quote === null) return []
  const { log, policy } = input
  const quoted = rtmrsOf(quote)
  return [eventLogCheck(log, quoted), ...(policy === null ? [] : [eventPolicyCheck(policy, log, quoted)])]
}

/** Reports whether a policy names the events of a register. */
export function namesEvents(input: EventInput | null, register: 'rtmr1' | 'rtmr2'): boolean {
  return input !== null && input.policy !== null && input.policy[register] !== 'any'
}

/** Returns the events for the document. Empty unless the log replays to the quote. */
export function eventsDocument(input: EventInput | null, quote: TdxQuote | null) {
  if (input === null) return null
  const isProved = quote !== null && verdict([eventLogCheck(input.log, rtmrsOf(quote))]).ok
  const events = isProved ? input.log : []
  return {
    events: events.map(event => ({
      rtmr: event.rtmr,
      type: hexNumber(BigInt(event.type)),
      digest: toHex(event.digest),
      data: isTdxDataMeasured(event) ? toHex(event.data) : null,
    })),
  }
}

function rtmrsOf({ report }: TdxQuote): readonly Uint8Array[] {
  return [report.rtmr0, report.rtmr1, report.rtmr2, report.rtmr3]
}
