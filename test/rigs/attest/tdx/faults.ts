// Ways in which a SIMULATED quote, its collateral or the platform is bad: the check that refuses each, and whether the
// second implementation looks at it at all.

import { toPem } from '../../../../src/attest/encoding/pem.ts'
import type { TDX_CHECKS } from '../../../../src/attest/tdx/verify.ts'
import {
  type CollateralWanted,
  chainOf,
  type Issued,
  issue,
  newKeys,
  type PckFields,
  partsOf,
  pointOf,
  type QuoteWanted,
  qeIdentityOf,
  SIMULATED_QE,
  SIMULATED_SGX,
  type SimulatedTdx,
  simulateCollateral,
  simulateQuote,
  svnLevel,
  tcbInfoOf,
  tcbLevel,
} from './simulated.ts'

const dayMs = 86_400_000

export type TdxCase = {
  readonly pck: PckFields
  readonly issued: Issued
  readonly quote: Omit<QuoteWanted, 'pck'>
  readonly collateral: CollateralWanted
  readonly asOfMs: number
  /** Changes the finished bytes. */
  readonly after?: (quote: Uint8Array) => Uint8Array
}

export type MadeCase = { readonly quote: Uint8Array; readonly collateral: Uint8Array; readonly asOfMs: number }

export async function madeCase(platform: SimulatedTdx, wanted: TdxCase): Promise<MadeCase> {
  const quote = await simulateQuote(platform, { ...wanted.quote, pck: wanted.issued })
  const collateral = await simulateCollateral(platform, wanted.collateral)
  return { quote: wanted.after?.(quote) ?? quote, collateral, asOfMs: wanted.asOfMs }
}

type Change = (platform: SimulatedTdx, good: TdxCase) => Promise<TdxCase> | TdxCase

export type Fault = {
  /** A check, or a check of the policy, that fails. */
  readonly check:
    | (typeof TDX_CHECKS)[number]
    | 'td-attributes-debug'
    | 'td-attributes-sept-ve-disable'
    | 'mr-service-td'
  /** Whether the second implementation refuses it as well. */
  readonly second: 'refuses' | 'does not look'
  readonly change: Change
}

const flipAt = (at: (good: TdxCase) => number): Change => {
  return (_, good) => ({
    ...good,
    after: quote => quote.with(at(good), (quote[at(good)] ?? 0) ^ 1),
  })
}

const part = (name: keyof ReturnType<typeof partsOf>, more = 0) =>
  flipAt(({ quote }) => partsOf(quote.version, quote.report)[name] + more)

const inInfo = (changes: (platform: SimulatedTdx) => Record<string, unknown>): Change => {
  return (platform, good) => ({
    ...good,
    collateral: {
      ...good.collateral,
      tcbInfo: { ...(good.collateral.tcbInfo ?? tcbInfoOf(platform.nowMs)), ...changes(platform) },
    },
  })
}

const inIdentity = (changes: Record<string, unknown>): Change => {
  return (platform, good) => ({
    ...good,
    collateral: { ...good.collateral, qeIdentity: qeIdentityOf(platform.nowMs, changes) },
  })
}

const inCollateral = (changes: (platform: SimulatedTdx) => Promise<CollateralWanted>): Change => {
  return async (platform, good) => ({ ...good, collateral: { ...good.collateral, ...(await changes(platform)) } })
}

const inQuote = (changes: (platform: SimulatedTdx, good: TdxCase) => Partial<QuoteWanted>): Change => {
  return (platform, good) => ({ ...good, quote: { ...good.quote, ...changes(platform, good) } })
}

const inReport = (changes: Partial<QuoteWanted['report']>): Change =>
  inQuote((_, { quote }) => ({ report: { ...quote.report, ...changes } }))

/** A signer with a certificate of the root, but of another name or of a stranger. */
async function otherSigner(platform: SimulatedTdx, by: 'root' | 'stranger', role: string): Promise<Issued> {
  const keys = await newKeys()
  const names = { subject: `CN=${SIMULATED_SGX} ${role},O=Strongroom simulator`, issuer: rootName }
  const der = await issue({ ...names, serial: '77', ca: null, nowMs: platform.nowMs }, keys, platform.keys[by])
  return { der, keys }
}

const rootName = `CN=${SIMULATED_SGX} Root CA,O=Strongroom simulator`
const refuses = 'refuses'
const doesNotLook = 'does not look'

export const FAULTS: Readonly<Record<string, Fault>> = {
  'a flipped bit of the header': { check: 'quote-signature', second: refuses, change: flipAt(() => 30) },
  'a flipped bit of the report': { check: 'quote-signature', second: refuses, change: flipAt(() => 200) },
  "a flipped bit of the quote's signature": { check: 'quote-signature', second: refuses, change: part('signature', 9) },
  'another attestation key': { check: 'qe-report-binding', second: refuses, change: part('key', 9) },
  'a flipped bit of the QE report': { check: 'qe-report-signature', second: refuses, change: part('qe', 70) },
  'a flipped bit of its signature': { check: 'qe-report-signature', second: refuses, change: part('qeSignature', 9) },
  'other authentication data': { check: 'qe-report-binding', second: refuses, change: part('qeSignature', 64 + 2 + 5) },
  'a QE report that goes on after the digest': {
    check: 'qe-report-binding',
    second: doesNotLook,
    change: async (platform, good) => {
      const data = new Uint8Array(64).fill(1)
      const bound = new Uint8Array([...(await pointOf(platform.attestation)), ...new Uint8Array(32).fill(3)])
      data.set(new Uint8Array(await crypto.subtle.digest('SHA-256', bound)))
      return { ...good, quote: { ...good.quote, qeReportData: data, authData: new Uint8Array(32).fill(3) } }
    },
  },
  'a quoting enclave of another vendor': {
    check: 'qe-vendor',
    second: doesNotLook,
    change: inQuote(() => ({ header: { qeVendorId: new Uint8Array(16) } })),
  },
  'a quoting enclave of another signer': {
    check: 'qe-identity',
    second: refuses,
    change: inQuote(() => ({ qe: { mrSigner: new Uint8Array(32) } })),
  },
  'another product': { check: 'qe-identity', second: refuses, change: inQuote(() => ({ qe: { isvProdId: 1 } })) },
  'a debug enclave': {
    check: 'qe-identity',
    second: refuses,
    change: inQuote(() => ({ qe: { attributes: Uint8Array.of(0x13, ...new Uint8Array(15)) } })),
  },
  'other attributes': {
    check: 'qe-identity',
    second: refuses,
    change: inQuote(() => ({ qe: { attributes: Uint8Array.of(0x31, ...new Uint8Array(15)) } })),
  },
  'another MISCSELECT': { check: 'qe-identity', second: refuses, change: inQuote(() => ({ qe: { miscSelect: 1 } })) },
  'a quoting enclave below every level': {
    check: 'tcb-level',
    second: refuses,
    change: inQuote(() => ({ qe: { isvSvn: SIMULATED_QE.isvSvn - 4 } })),
  },
  'a revoked quoting enclave': {
    check: 'tcb-not-revoked',
    second: refuses,
    change: inIdentity({ tcbLevels: [svnLevel(0, 'Revoked')] }),
  },
  'a TD under debug': {
    check: 'td-attributes-debug',
    second: refuses,
    change: inReport({ tdAttributes: (1n << 28n) | 1n }),
  },
  'a TD whose page faults the guest does not see': {
    check: 'td-attributes-sept-ve-disable',
    second: refuses,
    change: inReport({ tdAttributes: 0n }),
  },
  'a service TD': {
    check: 'mr-service-td',
    second: refuses,
    change: inQuote((_, { quote }) => ({
      version: 5,
      report: {
        ...quote.report,
        version: '1.5',
        added: { teeTcbSvn2: quote.report.teeTcbSvn, mrServiceTd: new Uint8Array(48).fill(1) },
      },
    })),
  },
  'a TDX module of another signer': {
    check: 'tdx-module',
    second: doesNotLook,
    change: inReport({ mrSignerSeam: new Uint8Array(48).fill(1) }),
  },
  'a TDX module with attributes': {
    check: 'tdx-module',
    second: doesNotLook,
    change: inReport({ seamAttributes: 1n }),
  },
  'a TDX module that the TCB info does not know': {
    check: 'tdx-module',
    second: doesNotLook,
    change: inReport({ teeTcbSvn: Uint8Array.of(255, 9, 255, ...new Uint8Array(13).fill(255)) }),
  },
  'a platform below every level': {
    check: 'tcb-level',
    second: refuses,
    change: inInfo(() => ({ tcbLevels: [tcbLevel({ status: 'UpToDate', pceSvn: 0xffff })] })),
  },
  'a revoked platform': {
    check: 'tcb-not-revoked',
    second: refuses,
    change: inInfo(() => ({
      tcbLevels: [tcbLevel({ status: 'Revoked', pceSvn: 0, sgx: new Array(16).fill(0), tdx: new Array(16).fill(0) })],
    })),
  },
  'TCB info of another platform': {
    check: 'tcb-info-platform',
    second: refuses,
    change: inInfo(() => ({ fmspc: '000000000001' })),
  },
  'TCB info of another PCE': {
    check: 'tcb-info-platform',
    second: doesNotLook,
    change: inInfo(() => ({ pceId: '0001' })),
  },
  'TCB info of SGX': { check: 'collateral-form', second: refuses, change: inInfo(() => ({ id: 'SGX' })) },
  'TCB info of a later day': {
    check: 'tcb-info-time',
    second: refuses,
    change: inInfo(({ nowMs }) => ({ issueDate: dateOf(nowMs + dayMs) })),
  },
  'TCB info that expired': {
    check: 'tcb-info-time',
    second: refuses,
    change: inInfo(({ nowMs }) => ({ nextUpdate: dateOf(nowMs - 2000) })),
  },
  'a QE identity that expired': {
    check: 'qe-identity-time',
    second: refuses,
    change: inIdentity({ nextUpdate: '2020-01-01T00:00:00Z' }),
  },
  'an identity of the SGX quoting enclave': {
    check: 'collateral-form',
    second: refuses,
    change: inIdentity({ id: 'QE' }),
  },
  'TCB info that was changed after it was signed': {
    check: 'tcb-info-signature',
    second: refuses,
    change: inCollateral(async ({ nowMs }) => ({ changes: { tcb_info: `${JSON.stringify(tcbInfoOf(nowMs))} ` } })),
  },
  'a QE identity that was changed after it was signed': {
    check: 'qe-identity-signature',
    second: refuses,
    change: inCollateral(async ({ nowMs }) => ({
      changes: { qe_identity: `${JSON.stringify(qeIdentityOf(nowMs))} ` },
    })),
  },
  'documents that a stranger signed': {
    check: 'tcb-info-chain',
    second: refuses,
    change: inCollateral(async platform => ({ signer: await otherSigner(platform, 'stranger', 'TCB Signing') })),
  },
  'documents that another certificate of the root signed': {
    check: 'tcb-info-chain',
    second: doesNotLook,
    change: inCollateral(async platform => ({ signer: await otherSigner(platform, 'root', 'Other Signing') })),
  },
  'documents that the PCK CA signed': {
    check: 'tcb-info-chain',
    second: refuses,
    change: inCollateral(async ({ authority }) => ({ signer: authority })),
  },
  'a revoked PCK certificate': {
    check: 'revocation',
    second: refuses,
    change: async (platform, good) => ({
      ...good,
      collateral: { ...good.collateral, pckCrl: await platform.crl('authority', { revoked: [good.pck.serial] }) },
    }),
  },
  'a revoked PCK CA': {
    check: 'revocation',
    second: refuses,
    change: inCollateral(async platform => ({ rootCrl: await platform.crl('root', { revoked: ['02'] }) })),
  },
  'a revoked TCB signing certificate': {
    check: 'revocation',
    second: refuses,
    change: inCollateral(async platform => ({ rootCrl: await platform.crl('root', { revoked: ['03'] }) })),
  },
  'a revocation list of a stranger': {
    check: 'root-crl',
    second: doesNotLook,
    change: inCollateral(async platform => ({ rootCrl: await platform.crl('stranger') })),
  },
  'the revocation list of the root in the place of that of the PCK CA': {
    check: 'pck-crl',
    second: doesNotLook,
    change: inCollateral(async platform => ({ pckCrl: await platform.crl('root') })),
  },
  'a revocation list that expired': {
    check: 'pck-crl',
    second: doesNotLook,
    change: inCollateral(async platform => ({
      pckCrl: await platform.crl('authority', { untilMs: platform.nowMs - 2000 }),
    })),
  },
  'certificates that expired': {
    check: 'pck-chain',
    second: refuses,
    change: (platform, good) => ({ ...good, asOfMs: platform.nowMs + 31 * dayMs }),
  },
  'a PCK certificate that a stranger issued': {
    check: 'pck-chain',
    second: refuses,
    change: async (platform, good) => {
      const stranger: SimulatedTdx = { ...platform, authority: await strangeAuthority(platform) }
      return { ...good, quote: { ...good.quote, chain: chainOf(stranger, good.issued) } }
    },
  },
  'a chain in another order': {
    check: 'pck-chain',
    second: refuses,
    change: ({ authority, rootDer }, good) => {
      const chain = [authority.der, good.issued.der, rootDer].map(der => toPem(der, 'CERTIFICATE')).join('')
      return { ...good, quote: { ...good.quote, chain } }
    },
  },
}

async function strangeAuthority({ keys, nowMs }: SimulatedTdx): Promise<Issued> {
  const subject = `CN=${SIMULATED_SGX} PCK Platform CA,O=Strongroom simulator`
  const wanted = { subject, issuer: rootName, serial: '02', ca: 0, nowMs }
  return { der: await issue(wanted, keys.stranger, keys.stranger), keys: keys.stranger }
}

function dateOf(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z')
}
