// A relying party's expectations of a vTPM's PCRs: their values, and a log that explains them. Pure.

import { InvalidArgumentError } from 'commander'
import { BANKS, bankNames, type StrongHash } from '../../../attest/tpm/algorithm.ts'
import { type EventLog, noAction } from '../../../attest/tpm/event-log.ts'
import {
  type EventLogInput,
  isDataMeasured,
  replayEventLog,
  verifyEventLog,
} from '../../../attest/tpm/event-log-verify.ts'
import type { PcrValues } from '../../../attest/tpm/quote.ts'
import { type Check, check, fail, notChecked, pass } from '../../../attest/verdict.ts'
import { concat, equalConstantTime, toHex } from '../../../base/bytes.ts'
import { pastedHex } from '../../../terminal/hex.ts'
import { hexNumber } from '../../../terminal/render.ts'
import { pcrPinName } from '../../verdict/summary.ts'

export const logCheckName = 'tpm-event-log'

export type ExpectedPcr = { readonly bank: StrongHash; readonly pcr: number; readonly value: Uint8Array }

const pcrMax = 23
const strongBanks: readonly StrongHash[] = bankNames.filter(bank => bank !== 'SHA-1')

/** Parses `INDEX=HEX`. May be repeated. The length of the value determines its bank. */
export function pcrOption(text: string, before: readonly ExpectedPcr[] = []): readonly ExpectedPcr[] {
  const [, index = '', hex = ''] = /^([0-9]{1,2})=([0-9a-fA-FxX]+)$/.exec(text) ?? []
  const value = pastedHex(hex)
  const bank = strongBanks.find(bank => BANKS[bank].sizeBytes === value?.length)
  if (value === null || bank === undefined || Number(index) > pcrMax) {
    throw new InvalidArgumentError(
      `It must be INDEX=HEX: a PCR from 0 to ${pcrMax}, and its SHA-256, SHA-384 or SHA-512 value in hexadecimal.`,
    )
  }
  const pcr = Number(index)
  if (before.some(other => other.bank === bank && other.pcr === pcr)) {
    throw new InvalidArgumentError(`${bank} PCR ${pcr} is named twice.`)
  }
  return [...before, { bank, pcr, value }]
}

/** Parses numbers and ranges separated by commas, such as 0-7,9. */
export function pcrListOption(text: string): readonly number[] {
  const pcrs = text.split(',').flatMap(part => {
    const [, first, last = first] = /^([0-9]{1,2})(?:-([0-9]{1,2}))?$/.exec(part.trim()) ?? []
    const [from, to] = [Number(first ?? Number.NaN), Number(last ?? Number.NaN)]
    if (!(from <= to && to <= pcrMax)) {
      throw new InvalidArgumentError(`It must be PCRs from 0 to ${pcrMax} with commas in between, like 0-7,9.`)
    }
    return Array.from({ length: to - from + 1 }, (_, at) => from + at)
  })
  return [...new Set(pcrs)].toSorted((a, b) => a - b)
}

/** Requires expected values: a genuine vTPM quotes whatever was measured, which proves nothing about the guest. */
export function pcrPin(expected: readonly ExpectedPcr[], isWaived: boolean): Check {
  if (expected.length > 0) return pass(pcrPinName, `${numbers(expected)}, named with --pcr`)
  return isWaived
    ? notChecked(pcrPinName, 'accepted any PCR values: you asked with --any-pcrs', false)
    : fail(pcrPinName, 'no PCR value is expected: name yours with --pcr, or accept any with --any-pcrs')
}

/** A TCG2 event log. */
export type EventLogFile = { readonly bytes: Uint8Array; readonly decoded: EventLog }

export type PcrQuestion = {
  readonly expected: readonly ExpectedPcr[]
  readonly pcrs: PcrValues
  /** Null if no log is given. */
  readonly log: EventLogFile | null
  /** The PCRs that the log must explain. */
  readonly logged: readonly number[] | 'all'
  /** Whether the TPM's signature covers the values; otherwise nothing can be compared. */
  readonly isQuoted: boolean
}

/** Returns `tpm-expected-pcrs` if values are expected, and `tpm-event-log` if a log is given. */
export function pcrChecks({ expected, pcrs, log, logged, isQuoted }: PcrQuestion): Check[] {
  const asked = [
    ...(expected.length === 0 ? [] : [{ name: 'tpm-expected-pcrs', make: () => expectedCheck(expected, pcrs) }]),
    ...(log === null ? [] : [{ name: logCheckName, make: () => logCheck(log, pcrs, logged) }]),
  ]
  return asked.map(({ name, make }) =>
    isQuoted ? make() : notChecked(name, 'the PCR values are not those of a good quote', true),
  )
}

function expectedCheck(expected: readonly ExpectedPcr[], pcrs: PcrValues): Check {
  const name = 'tpm-expected-pcrs'
  const unquoted = expected.filter(({ bank, pcr }) => pcrs[bank]?.get(pcr) === undefined)
  const others = expected.filter(({ bank, pcr, value }) => {
    const quoted = pcrs[bank]?.get(pcr)
    return quoted !== undefined && !equalConstantTime(quoted, value)
  })
  const words = [
    ...(others.length === 0 ? [] : [`${numbers(others)}: not equal to --pcr`]),
    ...(unquoted.length === 0 ? [] : [`${numbers(unquoted)}: not quoted`]),
  ]
  const quotedCount = strongBanks.reduce((sum, bank) => sum + (pcrs[bank]?.size ?? 0), 0)
  const rest = quotedCount - expected.length
  const success = `${numbers(expected)} equal to --pcr${rest === 0 ? '' : `; ${rest} more are quoted and not compared`}`
  return check(name, words.length === 0, words.join('; '), success)
}

/** Checks every quoted bank. The reason names each PCR whose value does not result from the log. */
function logCheck(log: EventLogFile, pcrs: PcrValues, answersFor: readonly number[] | 'all'): Check {
  const banks = strongBanks.filter(bank => (pcrs[bank]?.size ?? 0) > 0)
  if (banks.length === 0) return fail(logCheckName, 'no PCR is quoted')
  const found = banks.map(bank => {
    const { outcome, reason } = verifyEventLog({ log: log.bytes, bank, pcrs, answersFor })
    const isGood = outcome === 'pass'
    return {
      isGood,
      reason: `${bank}: ${isGood ? reason : (faultsOf(log.decoded, { bank, pcrs, answersFor }) ?? reason)}`,
    }
  })
  const bad = found.filter(({ isGood }) => !isGood)
  const words = (of: typeof found) => of.map(({ reason }) => reason).join('; ')
  return check(logCheckName, bad.length === 0, `${words(bad)}${advice(answersFor)}`, words(found))
}

type Replayed = { readonly bank: StrongHash } & Pick<EventLogInput, 'pcrs' | 'answersFor'>

/** Names all differing PCRs, because the library stops at the first. Null for other reasons. */
function faultsOf(log: EventLog, { bank, pcrs, answersFor }: Replayed): string | null {
  const quoted = pcrs[bank]
  if (quoted === undefined || !log.banks.includes(bank)) return null
  const { hash, sizeBytes } = BANKS[bank]
  // Extends every PCR, the quoted value and the log's, so that initial values need not be known here.
  const last = new Uint8Array(sizeBytes)
  const digests = new Map([[bank, last]])
  const ends = Array.from({ length: pcrMax + 1 }, (_, pcr) => ({ pcr, type: 0, digests, data: last }))
  const replayed = replayEventLog({ ...log, events: [...log.events, ...ends] }, bank)
  const wanted = answersFor === 'all' ? [...quoted.keys()] : answersFor
  const isReplayed = (pcr: number) =>
    equalConstantTime(hash(concat(quoted.get(pcr) ?? last, last)), replayed.get(pcr) ?? last)
  const unquoted = wanted.filter(pcr => !quoted.has(pcr))
  const wrong = wanted.filter(pcr => quoted.has(pcr) && !isReplayed(pcr))
  const words = [
    ...(wrong.length === 0 ? [] : [`the log does not replay to PCR ${wrong.join(', ')}`]),
    ...(unquoted.length === 0 ? [] : [`PCR ${unquoted.join(', ')} ${unquoted.length === 1 ? 'is' : 'are'} not quoted`]),
  ]
  return words.length === 0 ? null : words.join('; ')
}

function advice(answersFor: readonly number[] | 'all'): string {
  return answersFor === 'all' ? '; name the PCRs that the log alone extends with --event-log-pcrs' : ''
}

/**
 * Returns the events of a log that replays to the quoted values, without PCRs that it need not explain. Event types are
 * the log's own claim, because no PCR measures them.
 */
export function eventDocuments(log: EventLog, { pcrs, logged }: Pick<PcrQuestion, 'pcrs' | 'logged'>) {
  const bank = strongBanks.find(bank => (pcrs[bank]?.size ?? 0) > 0)
  if (bank === undefined) return []
  const isExplained = (pcr: number) => pcrs[bank]?.has(pcr) === true && (logged === 'all' || logged.includes(pcr))
  return log.events
    .filter(({ pcr, type }) => type !== noAction && isExplained(pcr))
    .map(event => ({
      pcr: event.pcr,
      type: hexNumber(BigInt(event.type)),
      digest: toHex(event.digests.get(bank) ?? new Uint8Array(0)),
      // The firmware may log any data beside an unrelated digest.
      data: isDataMeasured(event, bank) ? toHex(event.data) : null,
    }))
}

/** Formats `PCR 4, 7`, with the bank unless it is SHA-256. */
function numbers(pcrs: readonly Pick<ExpectedPcr, 'bank' | 'pcr'>[]): string {
  return strongBanks
    .flatMap(bank => {
      const found = pcrs.filter(pcr => pcr.bank === bank).map(({ pcr }) => pcr)
      const prefix = bank === 'SHA-256' ? '' : `${bank} `
      return found.length === 0 ? [] : [`${prefix}PCR ${found.toSorted((a, b) => a - b).join(', ')}`]
    })
    .join(', ')
}
