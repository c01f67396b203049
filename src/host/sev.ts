// The SEV firmware's status, through /dev/sev (Linux include/uapi/linux/psp-sev.h; AMD 56860 rev 1.58,
// SNP_PLATFORM_STATUS), and its ASIDs in use (Linux Documentation/admin-guide/cgroup-v2.rst, Misc). Effects: one ioctl
// that changes nothing; reads files.

import { ptr } from 'bun:ffi'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Fault, wrapFault } from '../base/fault.ts'
import { resultOr } from '../base/result-or.ts'
import { errnoName, ioctl } from '../linux/libc.ts'

export type SnpStatus = {
  readonly apiMajor: number
  readonly apiMinor: number
  readonly build: number
  /** Whether SNP_INIT has run, so that VMs can be launched. */
  readonly isInitialized: boolean
  readonly isRmpInitialized: boolean
  /** Whether reports name no chip. */
  readonly isChipMasked: boolean
  readonly guestCount: number
  readonly currentTcb: bigint
  readonly reportedTcb: bigint
}

/** Reads the firmware's status. Faults: host.unsupported (no /dev/sev, or no SNP). Root only. */
export function snpStatus(device = '/dev/sev'): SnpStatus {
  let fd: number
  try {
    fd = openSync(device, 'r+')
  } catch (error) {
    throw wrapFault(error, `open ${device}`, 'host.unsupported')
  }
  try {
    const status = new Uint8Array(statusBytes)
    const issue = new DataView(new ArrayBuffer(ISSUE.bytes))
    issue.setUint32(ISSUE.command, snpPlatformStatus, true)
    issue.setBigUint64(ISSUE.data, BigInt(ptr(status)), true)
    const done = ioctl(fd, SEV_ISSUE_CMD, new Uint8Array(issue.buffer))
    if (done.ok) return parseSnpStatus(status)
    const firmware = issue.getUint32(ISSUE.error, true)
    throw new Fault(
      'host.unsupported',
      `SNP_PLATFORM_STATUS: ${errnoName(done.errno)}, firmware error 0x${firmware.toString(16)}`,
    )
  } finally {
    closeSync(fd)
  }
}

/** _IOWR('S', 0x0, struct sev_issue_cmd). */
export const SEV_ISSUE_CMD = 0xc010_5300
/** struct sev_issue_cmd, packed: u32 cmd, u64 data, u32 error. */
export const ISSUE = { command: 0, data: 4, error: 12, bytes: 16 } as const
export const snpPlatformStatus = 9

/** struct sev_user_data_snp_status, packed; [offset, size], little-endian. */
export const STATUS = {
  apiMajor: [0x00, 1],
  apiMinor: [0x01, 1],
  state: [0x02, 1],
  rmp: [0x03, 1],
  build: [0x04, 4],
  flags: [0x08, 4],
  guestCount: [0x0c, 4],
  currentTcb: [0x10, 8],
  reportedTcb: [0x18, 8],
} as const satisfies Record<string, readonly [offset: number, sizeBytes: number]>
export const statusBytes = 32

/** Parses the status. Pure. Throws Fault host.unsupported if it has another length. */
export function parseSnpStatus(bytes: Uint8Array): SnpStatus {
  if (bytes.length !== statusBytes) throw new Fault('host.unsupported', `SNP_PLATFORM_STATUS of ${bytes.length} bytes`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return {
    apiMajor: view.getUint8(STATUS.apiMajor[0]),
    apiMinor: view.getUint8(STATUS.apiMinor[0]),
    isInitialized: view.getUint8(STATUS.state[0]) === 1,
    isRmpInitialized: (view.getUint8(STATUS.rmp[0]) & 1) !== 0,
    build: view.getUint32(STATUS.build[0], true),
    isChipMasked: (view.getUint32(STATUS.flags[0], true) & 1) !== 0,
    guestCount: view.getUint32(STATUS.guestCount[0], true),
    currentTcb: view.getBigUint64(STATUS.currentTcb[0], true),
    reportedTcb: view.getBigUint64(STATUS.reportedTcb[0], true),
  }
}

export type AsidUse = { readonly used: number; readonly total: number }

/** Returns the ASIDs of SEV-ES and SEV-SNP together; null if the kernel does not count them. Never throws. */
export function asidUse(root = '/sys/fs/cgroup'): AsidUse | null {
  const [used, total] = ['misc.current', 'misc.capacity'].map(file => countIn(join(root, file)))
  return used == null || total == null ? null : { used, total }
}

function countIn(path: string): number | null {
  const found = /^sev_es (\d+)$/m.exec(resultOr(() => readFileSync(path, 'utf8'), ''))?.[1]
  return found === undefined ? null : Number(found)
}
