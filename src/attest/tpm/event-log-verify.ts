// Replays an event log and compares the result with the PCR values of a quote. Pure. TPM 2.0 Library, Part 1, section
// 17.2 (extend) and PC Client Platform TPM Profile, section 4.6 (values after a reset).

import { concat, equalConstantTime } from '../../base/bytes.ts'
import type { HashName } from '../hash.ts'
import { Malformed } from '../malformed.ts'
import { type Check, fail, pass } from '../verdict.ts'
import { BANKS, type StrongHash } from './algorithm.ts'
import { decodeEventLog, type EventLog, type LogEvent, noAction } from './event-log.ts'
import type { PcrValues } from './quote.ts'

/** Returns the PCRs that the log extends, in one of its banks. Throws Malformed if the log lacks the bank. */
export function replayEventLog(log: EventLog, bank: HashName): ReadonlyMap<number, Uint8Array> {
  if (!log.banks.includes(bank)) throw new Malformed(`event log: no ${bank} bank`)
  const { hash, sizeBytes } = BANKS[bank]
  const pcrs = new Map<number, Uint8Array>()
  for (const event of log.events) {
    if (event.type === noAction) continue
    const digest = event.digests.get(bank)
    if (digest === undefined) throw new Malformed(`event log: an event without ${bank}`)
    const before = pcrs.get(event.pcr) ?? firstValue(event.pcr, sizeBytes, log.startupLocality)
    pcrs.set(event.pcr, hash(concat(before, digest)))
  }
  return pcrs
}

export type EventLogInput = {
  readonly log: Uint8Array
  readonly bank: StrongHash
  readonly pcrs: PcrValues
  /**
   * The PCRs that the log must explain, all of which must be quoted; 'all' for every quoted one. Later software extends
   * other PCRs after the firmware's log has ended: IMA in the running kernel extends PCR 10.
   */
  readonly answersFor: readonly number[] | 'all'
}

/**
 * Returns the check `tpm-event-log`: every quoted PCR in `answersFor` has the value that results from replaying the
 * log; a PCR that the log never extends has its initial value. The reason names quoted PCRs that are not covered, and
 * PCRs of the log that were not quoted, which prove nothing. Never throws.
 */
export function verifyEventLog(input: EventLogInput): Check {
  const name = 'tpm-event-log'
  const quoted = input.pcrs[input.bank]
  if (quoted === undefined || quoted.size === 0) return fail(name, `no ${input.bank} PCR is quoted`)
  const wanted = new Set(input.answersFor === 'all' ? quoted.keys() : input.answersFor)
  const isPcr = (pcr: number) => Number.isInteger(pcr) && pcr >= 0 && pcr <= pcrMax
  if (wanted.size === 0 || ![...wanted].every(isPcr)) return fail(name, `answersFor names no PCR from 0 to ${pcrMax}`)
  try {
    const log = decodeEventLog(input.log)
    const replayed = replayEventLog(log, input.bank)
    const { sizeBytes } = BANKS[input.bank]
    for (const pcr of wanted) {
      const value = quoted.get(pcr)
      if (value === undefined) return fail(name, `PCR ${pcr} is not quoted`)
      const expected = replayed.get(pcr) ?? firstValue(pcr, sizeBytes, log.startupLocality)
      if (!equalConstantTime(value, expected)) return fail(name, `the log does not replay to PCR ${pcr}`)
    }
    const others = [...quoted.keys()].filter(pcr => !wanted.has(pcr))
    const unquoted = [...replayed.keys()].filter(pcr => !quoted.has(pcr))
    const covered = `the log replays to ${wanted.size} of the ${quoted.size} quoted PCRs`
    const uncovered = others.length === 0 ? '' : `; it does not cover PCR ${others.join(', ')}`
    return pass(
      name,
      `${covered}${uncovered}${unquoted.length === 0 ? '' : `; its PCRs ${unquoted.join(', ')} are not quoted`}`,
    )
  } catch (error) {
    if (error instanceof Malformed) return fail(name, error.message)
    throw error
  }
}

/** The last PCR (PC Client Platform TPM Profile, section 4.6). */
const pcrMax = 23

/** Reports whether the event's data hash to its digest. Only then does the log authenticate the data. */
export function isDataMeasured(event: LogEvent, bank: StrongHash): boolean {
  const digest = event.digests.get(bank)
  return event.type !== noAction && digest !== undefined && equalConstantTime(BANKS[bank].hash(event.data), digest)
}

/**
 * Returns a PCR's initial value: zeros; PCR 0 ends with the startup locality; the dynamic PCRs 17 to 22 are all ones
 * until a dynamic launch.
 */
function firstValue(pcr: number, sizeBytes: number, startupLocality: number): Uint8Array {
  const value = new Uint8Array(sizeBytes).fill(pcr >= 17 && pcr <= 22 ? 0xff : 0)
  if (pcr === 0) value[sizeBytes - 1] = startupLocality
  return value
}
