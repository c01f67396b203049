// Policies made from a TDX quote: one that says nothing, and one that says everything that the quote says. Pure.

import { hasBit } from '../../../../src/attest/report/bits.ts'
import { strictTdxPolicy } from '../../../../src/attest/tdx/encode-policy.ts'
import type { TdxPolicy } from '../../../../src/attest/tdx/policy.ts'
import type { TdxQuote } from '../../../../src/attest/tdx/quote.ts'
import { TD_BITS, type TdBit } from '../../../../src/attest/tdx/td-attributes.ts'

const names = Object.keys(TD_BITS) as TdBit[]

function bitRules<Rule>(rule: (bit: number) => Rule): Record<TdBit, Rule> {
  return Object.fromEntries(names.map(name => [name, rule(TD_BITS[name])])) as Record<TdBit, Rule>
}

/** Everything 'any'. */
export const laxTdxPolicy: TdxPolicy = {
  ...strictTdxPolicy(),
  headerReserved: 'any',
  tdAttributes: { ...bitRules(() => 'any' as const), unknown: 'any' },
  mrServiceTd: 'any',
  tcbStatuses: 'any',
  minimumTcbDate: 'any',
  minimumTcbEvaluationDataNumber: 'any',
}

const exactMask = (value: bigint) => ({ required: value, forbidden: ~value & 0xffff_ffff_ffff_ffffn })

/** Every field says all that it can about this quote. Those about the platform stay 'any'. */
export function exactTdxPolicy({ version, header, report }: TdxQuote): TdxPolicy {
  return {
    ...laxTdxPolicy,
    quoteVersions: [version],
    headerReserved: 'zero',
    userData: header.userData,
    reportVersions: [report.version],
    teeTcbSvns: [report.teeTcbSvn],
    minimumTeeTcbSvn: report.teeTcbSvn,
    teeTcbSvn2s: report.added === null ? 'any' : [report.added.teeTcbSvn2],
    mrSeams: [report.mrSeam],
    mrSignerSeams: [report.mrSignerSeam],
    seamAttributes: exactMask(report.seamAttributes),
    tdAttributes: {
      ...bitRules(bit => (hasBit(report.tdAttributes, bit) ? ('required' as const) : ('forbidden' as const))),
      unknown: 'forbidden',
    },
    xfam: exactMask(report.xfam),
    mrTds: [report.mrTd],
    mrConfigId: report.mrConfigId,
    mrOwner: report.mrOwner,
    mrOwnerConfig: report.mrOwnerConfig,
    rtmr0: [report.rtmr0],
    rtmr1: [report.rtmr1],
    rtmr2: [report.rtmr2],
    rtmr3: [report.rtmr3],
    mrServiceTd: report.added?.mrServiceTd ?? 'any',
    reportData: report.reportData,
  }
}
