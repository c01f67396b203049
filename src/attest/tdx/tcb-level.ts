// The TCB level of a platform, its TDX module and its quoting enclave, and their combination. Pure. Intel PCS API
// version 4, "Get TDX TCB Info" and "Get TDX QE Identity"; Intel TDX DCAP, "Verification of TDX quotes".

import { equalConstantTime, toHex } from '../../base/bytes.ts'
import type { PckExtension } from './pck-extension.ts'
import type { EnclaveReport, TdReport } from './quote.ts'
import { type QeIdentity, type SvnLevel, TCB_STATUSES, type TcbInfo, type TcbStatus } from './tcb-info.ts'

/** Statuses of a TD whose module was updated while it ran: the current module is up to date, the launch was not. */
export const RELAUNCH_STATUSES = ['TDRelaunchAdvised', 'TDRelaunchAdvisedConfigurationNeeded'] as const

/** Status of a platform as judged here. Documents of Intel contain only the statuses of TcbStatus. */
export type JudgedStatus = TcbStatus | (typeof RELAUNCH_STATUSES)[number]

export type TcbLevel = {
  readonly status: JudgedStatus
  readonly advisories: readonly string[]
  readonly dateMs: number
}

export type LevelLookup =
  | { readonly ok: true; readonly level: DocumentLevel }
  | { readonly ok: false; readonly reason: string }

/** A level of Intel's documents. */
export type DocumentLevel = TcbLevel & { readonly status: TcbStatus }

/**
 * Returns the first level that the platform reaches in every component: Intel lists the newest first. `svns`: those of
 * the TDX module, at the TD's launch or current.
 */
export function platformLevel(info: TcbInfo, pck: PckExtension, svns: Uint8Array): LevelLookup {
  // If the module has its own identities, components 0 and 1 belong to it, and moduleLevel judges them.
  const first = moduleVersion(svns) === 0 ? 0 : 2
  const found = info.tcbLevels.find(({ tcb }) => {
    const sgx = tcb.sgxtcbcomponents.every(({ svn }, at) => (pck.components[at] ?? -1) >= svn)
    const tdx = tcb.tdxtcbcomponents.every(({ svn }, at) => at < first || (svns[at] ?? -1) >= svn)
    return sgx && tdx && pck.pceSvn >= tcb.pcesvn
  })
  return found === undefined ? none('the platform is below every TCB level') : some(found)
}

/**
 * Checks signer and attributes of the TDX module and returns its level. Before module version 1 it has no own level.
 */
export function moduleLevel(info: TcbInfo, report: TdReport): LevelLookup {
  const identity = moduleIdentity(info, report.teeTcbSvn)
  if (typeof identity === 'string') return none(identity)
  const { mrsigner, attributes, attributesMask } = identity ?? info.tdxModule
  if (!equalConstantTime(report.mrSignerSeam, mrsigner))
    return none(`MRSIGNERSEAM ${toHex(report.mrSignerSeam)} is not ${toHex(mrsigner)}`)
  const given = littleEndian(report.seamAttributes)
  if (!isSameUnder(given, attributes, attributesMask)) return none('SEAMATTRIBUTES are not those of the module')
  return moduleSvnLevel(info, report.teeTcbSvn)
}

/** Returns the level of a TDX module by its SVNs alone. */
export function moduleSvnLevel(info: TcbInfo, svns: Uint8Array): LevelLookup {
  const identity = moduleIdentity(info, svns)
  if (typeof identity === 'string') return none(identity)
  if (identity === null) return { ok: true, level: { status: 'UpToDate', advisories: [], dateMs: 0 } }
  const svn = svns[0] ?? 0
  return levelOf(identity.tcbLevels, svn, `module ${identity.id} at SVN ${svn}`)
}

/** Returns the identity of a module version; null before version 1, which has none; otherwise the reason. */
function moduleIdentity({ tdxModuleIdentities: listed }: TcbInfo, svns: Uint8Array) {
  const version = moduleVersion(svns)
  if (version === 0) return null
  const id = `TDX_${toHex(Uint8Array.of(version))}`
  return (
    listed?.find(entry => entry.id.toLowerCase() === id.toLowerCase()) ?? `the TCB info has no identity of module ${id}`
  )
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
export function combined(platform: DocumentLevel, others: readonly DocumentLevel[]): DocumentLevel {
  return others.reduce<DocumentLevel>((sum, other) => {
    const { status } = other
    const worse = status === 'Revoked' ? 'Revoked' : status === 'UpToDate' ? sum.status : WHEN_OUT_OF_DATE[sum.status]
    return { ...joined(sum, other), status: worse }
  }, platform)
}

/**
 * Combines the level at the TD's launch with that of the module that runs now. Intel advises a relaunch if the launch
 * was out of date and the current module is not. Otherwise the worse status counts, which is stricter than Intel's
 * library for a current module below the one at launch.
 */
export function withCurrent(launch: DocumentLevel, current: DocumentLevel): TcbLevel {
  const isLaunchOld = launch.status in OUT_OF_DATE
  const isCurrentOld = current.status in OUT_OF_DATE || current.status === 'Revoked'
  if (!isLaunchOld || isCurrentOld) {
    const rank = ({ status }: DocumentLevel) => TCB_STATUSES.indexOf(status)
    return { ...joined(launch, current), status: (rank(current) > rank(launch) ? current : launch).status }
  }
  const isConfiguration = [launch, current].some(({ status }) => status.includes('Configuration'))
  return { ...joined(launch, current), status: RELAUNCH_STATUSES[isConfiguration ? 1 : 0] }
}

const OUT_OF_DATE = { OutOfDate: true, OutOfDateConfigurationNeeded: true } as const

function joined(first: TcbLevel, other: TcbLevel): Omit<TcbLevel, 'status'> {
  return {
    advisories: [...new Set([...first.advisories, ...other.advisories])],
    dateMs: other.dateMs === 0 ? first.dateMs : Math.min(first.dateMs, other.dateMs),
  }
}

function moduleVersion(svns: Uint8Array): number {
  return svns[1] ?? 0
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
