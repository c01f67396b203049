// The kinds of vTPM that can be verified, and the options that each requires and accepts. Pure.

import { InputFault } from '../../../terminal/exit.ts'
import { required } from '../../../terminal/options.ts'
import type { TdxSources } from '../../tdx/judge.ts'
import type { PinOptions } from '../../trust/pin-options.ts'
import type { PolicyFlags } from '../../trust/policy-flags.ts'
import type { ExpectedPcr } from './pcr-checks.ts'

export const KINDS = ['azure-hcl', 'azure-tdx', 'svsm', 'host'] as const
export type Kind = (typeof KINDS)[number]

export type VtpmOptions = CommonOptions & KindOptions

type CommonOptions = {
  kind: Kind
  quote?: string
  signature?: string
  nonce: Uint8Array
  pcrs?: string
  pcr?: readonly ExpectedPcr[]
  anyPcrs?: boolean
  eventLog?: string
  eventLogPcrs?: readonly number[]
  verbose?: boolean
}

/** Options that apply to some kinds only. */
export type KindOptions = Omit<PinOptions, 'anyAllowlist' | 'anyOperatorKey' | 'anyGateway' | 'anyVmpl'> &
  PolicyFlags &
  TdxSources & {
    evidence?: string
    tdQuote?: string
    report?: string
    vek?: string
    chain?: string
    crl?: string
    asOf?: number
    policy?: string
    maskedChipId?: boolean
    certificateTable?: string
    trustSimulatedRoot?: string
    ak?: string
    ek?: string
    reportNonce?: Uint8Array
    credentialEk?: string
    credentialName?: Uint8Array
    credentialSecret?: string
    activated?: string
  }

const EVIDENCE = [
  'report',
  'vek',
  'chain',
  'crl',
  'asOf',
  'policy',
  'measurement',
  'hostData',
  'idKeyDigest',
  'authorKeyDigest',
  'chipId',
  'vmpl',
  'minimumGuestSvn',
  'maskedChipId',
  'certificateTable',
  'trustSimulatedRoot',
  'anyMeasurement',
  'anyCrl',
  'anyTcb',
  'waiveFloor',
] as const satisfies (keyof KindOptions)[]

/** Options of an activated credential, which proves that the TPM holds both keys. Give all of them, or none. */
export const CREDENTIAL = [
  'credentialEk',
  'credentialName',
  'credentialSecret',
  'activated',
] as const satisfies (keyof KindOptions)[]

/** Options of `verify tdx` that a vTPM of TDX takes, too. */
const TDX = [
  ...['report', 'tdQuote', 'policy', 'asOf', 'trustSimulatedRoot', 'anyMeasurement'],
  ...['collateral', 'fetch', 'cache', 'pcsUrl'],
] as const satisfies (keyof KindOptions)[]

const OF_KIND: { readonly [Name in Kind]: readonly (keyof KindOptions)[] } = {
  'azure-hcl': [...EVIDENCE, 'evidence', 'ak'],
  'azure-tdx': [...TDX, 'evidence', 'ak'],
  svsm: [...EVIDENCE, 'ak', 'ek', 'reportNonce', ...CREDENTIAL],
  host: ['ak'],
}

/** Parts of a bundle. A file of --vek replaces the certificate in it. */
const IN_BUNDLE = ['quote', 'signature', 'pcrs', 'report', 'tdQuote'] as const

/** Throws InputFault for an option without effect on this kind, which would otherwise look as if it was checked. */
export function refuseOthers(options: VtpmOptions): void {
  const { kind } = options
  const all = new Set(Object.values(OF_KIND).flat())
  const odd = [...all].find(name => options[name] !== undefined && !OF_KIND[kind].includes(name))
  if (odd !== undefined) {
    throw new InputFault(`--${flagOf(odd)} does not apply to a vTPM of kind ${kind}`, {
      param: flagOf(odd),
      remedy: 'leave it out, or name another --kind',
    })
  }
  const twice = IN_BUNDLE.find(name => options.evidence !== undefined && options[name] !== undefined)
  if (twice !== undefined) {
    const param = flagOf(twice)
    throw new InputFault(`--${param}: the bundle of --evidence contains it`, { param, remedy: 'leave it out' })
  }
  if (options.eventLogPcrs !== undefined) required('event-log', options.eventLog)
}

/** Returns the option's value. Throws InputFault if it is missing. */
export function needed<Name extends keyof KindOptions>(
  options: KindOptions,
  name: Name,
): Exclude<KindOptions[Name], undefined> {
  return required(flagOf(name), options[name] as Exclude<KindOptions[Name], undefined> | undefined)
}

function flagOf(name: string): string {
  return name.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)
}
