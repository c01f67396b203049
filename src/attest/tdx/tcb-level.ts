// The TCB level of a platform, its TDX module and its quoting enclave, and their combination. Pure. Intel PCS API
// version 4, "Get TDX TCB Info" and "Get TDX QE Identity"; Intel TDX DCAP, "Verification of TDX quotes".

import { equalConstantTime, toHex } from '../../base/bytes.ts'
import type { PckExtension } from './pck-extension.ts'
import type { EnclaveReport, TdReport } from './quote.ts'
import type { QeIdentity, SvnLevel, TcbInfo, TcbStatus } from './tcb-info.ts'

export type TcbLevel = {
  readonly status: TcbStatus
  readonly advisories: readonly string[]
  readonly dateMs: number
}

export type LevelLookup =
  | { readonly ok: true; readonly level: TcbLevel }
  | { readonly ok: false; readonly reason: string }

/** Returns the first level that the platform reaches in every component: Intel lists the newest first. */
export function platformLevel(info: TcbInfo, pck: PckExtension, report: TdReport): LevelLookup {
  // If the module has its own identities, components 0 and 1 belong to it, and moduleLevel judges them.
  const first = moduleVersion(report) === 0 ? 0 : 2
  const found = info.tcbLevels.find(({ tcb }) => {
    const sgx = tcb.sgxtcbcomponents.every(({ svn }, at) => (pck.components[at] ?? -1) >= svn)
    const tdx = tcb.tdxtcbcomponents.every(({ svn }, at) => at < first || (report.teeTcbSvn[at] ?? -1) >= svn)
    return sgx && tdx && pck.pceSvn >= tcb.pcesvn
  })
  return found === undefined ? none('the platform is below every TCB level') : some(found)
}

/**
 * Checks signer and attributes of the TDX module and returns its level. Before module version 1 it has no own level.
 */
export function moduleLevel(info: TcbInfo, report: TdReport): LevelLookup {
  const version = moduleVersion(report)
  const id = `TDX_${toHex(Uint8Array.of(version))}`
  const identity =
    version === 0 ? undefined : info.tdxModuleIdentities?.find(entry => entry.id.toLowerCase() === id.toLowerCase())
  if (version !== 0 && identity === undefined) return none(`the TCB info has no identity of module ${id}`)
  const { mrsigner, attributes, attributesMask } = identity ?? info.tdxModule
  if (!equalConstantTime(report.mrSignerSeam, mrsigner))
    return none(`MRSIGNERSEAM ${toHex(report.mrSignerSeam)} is not ${toHex(mrsigner)}`)
  const given = littleEndian(report.seamAttributes)
  if (!isSameUnder(given, attributes, attributesMask)) return none('SEAMATTRIBUTES are not those of the module')
  if (identity === undefined) return { ok: true, level: { status: 'UpToDate', advisories: [], dateMs: 0 } }
  const svn = report.teeTcbSvn[0] ?? 0
  return levelOf(identity.tcbLevels, svn, `module ${id} at SVN ${svn}`)
}

/** Compares the quoting enclave with Intel's description. Returns the first difference; null if it matches. */
export function qeFault(identity: QeIdentity, qe: EnclaveReport): string | null {
  if (!equalConstantTime(qe.mrSigner, identity.mrsigner)) return `MRSIGNER ${toHex(qe.mrSigner)} is not Intel's`
  if (qe.isvProdId !== identity.isvprodid) return `ISVPRODID ${qe.isvProdId} is not ${identity.isvprodid}`
  if (!isSameUnder(littleEndian(qe.miscSelect), identity.miscselect, identity.miscselectMask))
    return 'MISCSELECT is not that of the identity'
  if (!isSameUnder(qe.attributes, identity.attributes, identity.attributesMask))
    return 'ATTRIBUTES are not those of the identity'
  const isDebug = ((qe.attributes[0] ?? 0) & 0x02) !== 0
  return isDebug ? 'it is a debug enclave' : null
}

export function qeLevel(identity: QeIdentity, qe: EnclaveReport): LevelLookup {
  return levelOf(identity.tcbLevels, qe.isvSvn, `the quoting enclave at SVN ${qe.isvSvn}`)
}

/** Statuses that change if the module or the quoting enclave is out of date. */
const WHEN_OUT_OF_DATE = {
  UpToDate: 'OutOfDate',
  SWHardeningNeeded: 'OutOfDate',
  ConfigurationNeeded: 'OutOfDateConfigurationNeeded',
  ConfigurationAndSWHardeningNeeded: 'OutOfDateConfigurationNeeded',
  OutOfDate: 'OutOfDate',
  OutOfDateConfigurationNeeded: 'OutOfDateConfigurationNeeded',
  Revoked: 'Revoked',
} as const satisfies Record<TcbStatus, TcbStatus>

/** Returns the platform's status, lowered by the others. Enclave and module have only the three statuses here. */
export function combined(platform: TcbLevel, others: readonly TcbLevel[]): TcbLevel {
  return others.reduce<TcbLevel>((sum, { status, advisories, dateMs }) => {
    const worse = status === 'Revoked' ? 'Revoked' : status === 'UpToDate' ? sum.status : WHEN_OUT_OF_DATE[sum.status]
    return {
      status: worse,
      advisories: [...new Set([...sum.advisories, ...advisories])],
      dateMs: dateMs === 0 ? sum.dateMs : Math.min(sum.dateMs, dateMs),
    }
  }, platform)
}

function moduleVersion({ teeTcbSvn }: TdReport): number {
  return teeTcbSvn[1] ?? 0
}

function levelOf(levels: readonly SvnLevel[], svn: number, what: string): LevelLookup {
  const found = levels.find(({ tcb }) => svn >= tcb.isvsvn)
  return found === undefined ? none(`${what} is below every level`) : some(found)
}

function some(level: { tcbStatus: TcbStatus; advisoryIDs?: readonly string[]; tcbDate: number }): LevelLookup {
  return { ok: true, level: { status: level.tcbStatus, advisories: level.advisoryIDs ?? [], dateMs: level.tcbDate } }
}

function none(reason: string): LevelLookup {
  return { ok: false, reason }
}

function isSameUnder(given: Uint8Array, wanted: Uint8Array, mask: Uint8Array): boolean {
  return mask.every((bits, at) => ((given[at] ?? 0) & bits) === ((wanted[at] ?? 0) & bits))
}

function littleEndian(value: number | bigint): Uint8Array {
  const bytes = new Uint8Array(typeof value === 'number' ? 4 : 8)
  const view = new DataView(bytes.buffer)
  if (typeof value === 'number') view.setUint32(0, value, true)
  else view.setBigUint64(0, value, true)
  return bytes
}
