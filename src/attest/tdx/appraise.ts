// Checks whether a TDX quote and its collateral meet a relying party's policy. Pure. Checks no signature: a forged
// quote can pass.

import { toHex } from '../../base/bytes.ts'
import { dayMs } from '../../base/time.ts'
import { isZero } from '../encoding/layout.ts'
import { bitChecks, bytesCheck, listCheck, maskCheck, skipped } from '../policy/field-checks.ts'
import { namedBits } from '../report/bits.ts'
import { type Check, check, fail, notChecked } from '../verdict.ts'
import type { PckExtension } from './pck-extension.ts'
import type { TdxPolicy } from './policy.ts'
import type { TdReport, TdxQuote } from './quote.ts'
import type { TcbLevel } from './tcb-level.ts'
import { TD_BITS } from './td-attributes.ts'

/** Facts from outside of the quote. Null if unreadable; checks that need them then fail. */
export type TdxCollateralFacts = {
  readonly pck: PckExtension | null
  readonly level: TcbLevel | null
  readonly collateral: {
    readonly asOfMs: number
    /** Issue time of the oldest part. */
    readonly issuedMs: number
    /** The lower number of TCB info and QE identity. */
    readonly evaluationDataNumber: number
  } | null
}

/** Returns one check for each field of a policy and for each attribute, in a fixed order. Never throws. */
export function appraiseTdx(quote: TdxQuote, policy: TdxPolicy, facts: TdxCollateralFacts): Check[] {
  const { header, report } = quote
  return [
    listCheck('quote-version', quote.version, policy.quoteVersions, String),
    policy.headerReserved === 'any'
      ? skipped('header-reserved')
      : check('header-reserved', header.reserved8 === 0, 'the reserved bytes of the header are not zero'),
    bytesCheck('user-data', header.userData, policy.userData),
    listCheck('report-version', report.version, policy.reportVersions, version => version),
    ...svnChecks(quote, policy),
    listCheck('mr-seam', report.mrSeam, policy.mrSeams, toHex),
    listCheck('mr-signer-seam', report.mrSignerSeam, policy.mrSignerSeams, toHex),
    maskCheck('seam-attributes', report.seamAttributes, policy.seamAttributes),
    ...bitChecks(
      'td-attributes',
      TD_BITS,
      report.tdAttributes,
      policy.tdAttributes,
      namedBits(TD_BITS, report.tdAttributes),
    ),
    maskCheck('xfam', report.xfam, policy.xfam),
    listCheck('mr-td', report.mrTd, policy.mrTds, toHex),
    bytesCheck('mr-config-id', report.mrConfigId, policy.mrConfigId),
    bytesCheck('mr-owner', report.mrOwner, policy.mrOwner),
    bytesCheck('mr-owner-config', report.mrOwnerConfig, policy.mrOwnerConfig),
    listCheck('rtmr0', report.rtmr0, policy.rtmr0, toHex),
    listCheck('rtmr1', report.rtmr1, policy.rtmr1, toHex),
    listCheck('rtmr2', report.rtmr2, policy.rtmr2, toHex),
    listCheck('rtmr3', report.rtmr3, policy.rtmr3, toHex),
    serviceTdCheck(report, policy.mrServiceTd),
    bytesCheck('report-data', report.reportData, policy.reportData),
    ...platformChecks(policy, facts.pck),
    ...tcbChecks(policy, facts.level),
    ...collateralChecks(policy, facts.collateral),
  ]
}

function svnChecks({ report }: TdxQuote, policy: TdxPolicy): Check[] {
  const { minimumTeeTcbSvn: least, teeTcbSvn2s } = policy
  const below = least === 'any' ? [] : [...least.keys()].filter(at => (report.teeTcbSvn[at] ?? 0) < (least[at] ?? 0))
  const minimum = 'minimum-tee-tcb-svn'
  return [
    listCheck('tee-tcb-svn', report.teeTcbSvn, policy.teeTcbSvns, toHex),
    least === 'any'
      ? skipped(minimum)
      : check(
          minimum,
          below.length === 0,
          `components ${below.join(', ')} are below the minimum`,
          toHex(report.teeTcbSvn),
        ),
    teeTcbSvn2s !== 'any' && report.added === null
      ? fail('tee-tcb-svn2', 'a report of TDX 1.0 has none')
      : listCheck('tee-tcb-svn2', report.added?.teeTcbSvn2 ?? new Uint8Array(), teeTcbSvn2s, toHex),
  ]
}

/** A report of TDX 1.0 leaves the value open: it fails a named one, and zeros are not compared. */
function serviceTdCheck({ added }: TdReport, wanted: TdxPolicy['mrServiceTd']): Check {
  const name = 'mr-service-td'
  const reason = 'a TD report 1.0 does not name service TDs'
  if (wanted === 'any') return skipped(name)
  if (added !== null) return bytesCheck(name, added.mrServiceTd, wanted)
  return isZero(wanted) ? notChecked(name, reason, false) : fail(name, reason)
}

function platformChecks(policy: TdxPolicy, pck: PckExtension | null): Check[] {
  const missing = 'there is no PCK certificate that can be read'
  const checkListed = (name: string, value: Uint8Array | undefined, allowed: readonly Uint8Array[] | 'any') => {
    if (allowed !== 'any' && value === undefined) return notChecked(name, missing, true)
    return listCheck(name, value ?? new Uint8Array(), allowed, toHex)
  }
  return [checkListed('fmspc', pck?.fmspc, policy.fmspcs), checkListed('ppid', pck?.ppid, policy.ppids)]
}

function tcbChecks(policy: TdxPolicy, level: TcbLevel | null): Check[] {
  const { tcbStatuses, refusedAdvisories, minimumTcbDate: since } = policy
  const missing = 'the platform has no TCB level'
  const refused = refusedAdvisories === 'any' ? [] : refusedAdvisories.filter(id => level?.advisories.includes(id))
  return [
    tcbStatuses !== 'any' && level === null
      ? notChecked('tcb-status', missing, true)
      : listCheck('tcb-status', level?.status ?? 'Revoked', tcbStatuses, status => status),
    refusedAdvisories === 'any'
      ? skipped('advisories')
      : level === null
        ? notChecked('advisories', missing, true)
        : check('advisories', refused.length === 0, `the platform is exposed to ${refused.join(', ')}`),
    since === 'any'
      ? skipped('tcb-date')
      : level === null
        ? notChecked('tcb-date', missing, true)
        : dateCheck(level, since),
  ]
}

function dateCheck({ dateMs }: TcbLevel, since: string): Check {
  const found = new Date(dateMs).toISOString().slice(0, 10)
  return check('tcb-date', dateMs >= Date.parse(since), `the TCB level is of ${found}, before ${since}`, found)
}

function collateralChecks(policy: TdxPolicy, collateral: TdxCollateralFacts['collateral']): Check[] {
  const { minimumTcbEvaluationDataNumber: least, maxCollateralAgeDays: days } = policy
  const [number, age] = ['tcb-evaluation-data-number', 'collateral-age'] as const
  const unread = (name: string, rule: number | 'any') =>
    rule === 'any' ? skipped(name) : notChecked(name, 'there is no collateral that can be read', true)
  if (collateral === null) return [unread(number, least), unread(age, days)]
  const { asOfMs, issuedMs, evaluationDataNumber: found } = collateral
  const issued = `issued ${new Date(issuedMs).toISOString()}`
  return [
    least === 'any' ? skipped(number) : check(number, found >= least, `${found} is less than ${least}`, String(found)),
    days === 'any'
      ? skipped(age)
      : check(
          age,
          asOfMs - issuedMs <= days * dayMs,
          `${issued}, more than ${days} days before this verification`,
          issued,
        ),
  ]
}
