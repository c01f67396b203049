// A relying party's policy for TDX quotes: the one table of its fields, from JSON and back. Pure. To add a field, add a
// row here and its check in appraise.ts.

import { utf8 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import {
  bits,
  type Field,
  hex,
  integer,
  type Kind,
  listOf,
  masks,
  object,
  oneOf,
  orAny,
  text,
  type Valued,
} from '../policy/kinds.ts'
import { TCB_STATUSES } from './tcb-info.ts'
import { RELAUNCH_STATUSES } from './tcb-level.ts'
import { TD_BITS } from './td-attributes.ts'

/** `strict`: the value in strictTdxPolicy, in its JSON form. */
type PolicyField<T> = Field<T> & { readonly strict: unknown }

const format = 'strongroom/tdx-policy/v1'
const digests = orAny(listOf(hex(48)))
const digest = orAny(hex(48))
const zeros48 = '00'.repeat(48)
const date = text('20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])', 'a date like 2024-03-13')
/** Intel's TCB recovery of March 2024 and its evaluation, the least that the default policy accepts. */
const tcbDateMin = '2024-03-13'
const evaluationDataNumberMin = 17

/** 'any' skips a check. No policy accepts a revoked TCB or an invalid signature. */
export const TDX_POLICY_FIELDS = {
  format: { ...oneOf([format]), schema: { const: format }, remedy: `write "${format}"`, strict: format },
  quoteVersions: field(orAny(listOf(integer(5, 4)))),
  /** Four bytes of the header that formats 4 and 5 do not use. */
  headerReserved: field(oneOf(['zero', 'any']), 'zero'),
  /** 20 bytes from the quoting enclave: its id, then zeros. */
  userData: field(orAny(hex(20))),
  reportVersions: field(orAny(listOf(oneOf(['1.0', '1.5'])))),
  /** SVNs of the TDX module: 16 bytes, as in the report. */
  teeTcbSvns: field(orAny(listOf(hex(16)))),
  /** Minimum for each of the 16 SVNs. */
  minimumTeeTcbSvn: field(orAny(hex(16))),
  /** SVNs of a module that was updated while the TD ran. A report of TDX 1.0 has none and fails. */
  teeTcbSvn2s: field(orAny(listOf(hex(16)))),
  mrSeams: field(digests),
  mrSignerSeams: field(digests),
  seamAttributes: field(orAny(masks())),
  tdAttributes: field(bits(TD_BITS), {
    debug: 'forbidden',
    hgsPlusProfiling: 'forbidden',
    performanceProfiling: 'forbidden',
    pmtProfiling: 'forbidden',
    icssd: 'any',
    lass: 'any',
    septVeDisable: 'required',
    migratable: 'forbidden',
    pks: 'any',
    keyLocker: 'any',
    tpa: 'any',
    perfmon: 'any',
    unknown: 'forbidden',
  }),
  xfam: field(orAny(masks())),
  mrTds: field(digests),
  mrConfigId: field(digest),
  mrOwner: field(digest),
  mrOwnerConfig: field(digest),
  rtmr0: field(digests),
  rtmr1: field(digests),
  rtmr2: field(digests),
  rtmr3: field(digests),
  /** Zeros if no service TD is bound. A report of TDX 1.0 has no value: it fails any but zeros and 'any'. */
  mrServiceTd: field(digest, zeros48),
  reportData: field(orAny(hex(64))),
  /** Family, model and platform of the processor, from the PCK certificate. */
  fmspcs: field(orAny(listOf(hex(6)))),
  /** Ids of individual platforms. */
  ppids: field(orAny(listOf(hex(16)))),
  /** Combined status of the platform, its TDX module and its quoting enclave. */
  tcbStatuses: field(orAny(listOf(oneOf([...TCB_STATUSES.slice(0, -1), ...RELAUNCH_STATUSES]))), ['UpToDate']),
  /** Earliest accepted date of the platform's TCB level, in UTC: the platform has Intel's fixes up to it. */
  minimumTcbDate: { ...field(orAny(date), tcbDateMin), whenMissing: tcbDateMin },
  /** Advisories that must not affect the platform, whatever its status. */
  refusedAdvisories: field(orAny(listOf(text('[A-Z0-9-]{1,64}', 'an id like INTEL-SA-00837')))),
  /** Minimum for the TCB info and the QE identity. A lower number is an older judgement of the same platform. */
  minimumTcbEvaluationDataNumber: field(orAny(integer(1_000_000)), evaluationDataNumberMin),
  /** Maximum days since the TCB info, the QE identity and the revocation lists were issued. */
  maxCollateralAgeDays: field(orAny(integer(3650))),
} as const satisfies Readonly<Record<string, PolicyField<unknown>>>

const policyKind = object(TDX_POLICY_FIELDS)

export type TdxPolicy = Valued<typeof policyKind>

export const tdxPolicySchema: { readonly [keyword: string]: unknown } = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Policy for TDX quotes',
  ...policyKind.schema,
}

/**
 * Parses a policy given as text, in which a duplicate name is an error, or as the result of a strict reader. Throws
 * Malformed.
 */
export function parseTdxPolicy(json: unknown): TdxPolicy {
  const text = typeof json === 'string' ? utf8(json) : json
  return policyKind.parse(text instanceof Uint8Array ? parsedJson('policy', text) : json, 'policy')
}

/** Returns the registers that measure what the firmware starts and that the policy does not restrict. */
export function openRtmrs(policy: TdxPolicy): readonly ('rtmr1' | 'rtmr2')[] {
  return (['rtmr1', 'rtmr2'] as const).filter(name => policy[name] === 'any')
}

function field<T>(kind: Kind<T>, strict: unknown = 'any'): PolicyField<T> {
  return { ...kind, strict }
}
