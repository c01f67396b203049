// PAGE_INFO, the record by which SNP_LAUNCH_UPDATE extends the launch digest (AMD 56860 rev 1.58, 8.17.2). Pure.

import { type Layout, layoutBytes } from '../encoding/layout.ts'
import { wellFormed } from '../malformed.ts'

/** [offset, size]; little-endian. */
export const PAGE_INFO = {
  digestCurrent: [0x00, 48],
  contents: [0x30, 48],
  length: [0x60, 2],
  pageType: [0x62, 1],
  imiPage: [0x63, 1],
  vmpl3Permissions: [0x64, 1],
  vmpl2Permissions: [0x65, 1],
  vmpl1Permissions: [0x66, 1],
  reserved: [0x67, 1],
  gpa: [0x68, 8],
} as const satisfies Layout

export const pageInfoBytes = layoutBytes(PAGE_INFO)
export const launchDigestBytes = 48

/** Types of launched pages. For the last four, the digest covers type and address but not the contents. */
const PAGE_TYPES = { normal: 1, vmsa: 2, zero: 3, unmeasured: 4, secrets: 5, cpuid: 6 } as const

export type PageType = keyof typeof PAGE_TYPES

export function hasMeasuredContents(type: PageType): boolean {
  return type === 'normal' || type === 'vmsa'
}

export type PageInfo = { readonly type: PageType; readonly gpa: bigint }

/**
 * Writes a record into `into`. `digest` (so far) and `contents`: 48 bytes each; `contents` is null for unmeasured
 * types.
 */
export function putPageInfo(into: Uint8Array, page: PageInfo, digest: Uint8Array, contents: Uint8Array | null): void {
  wellFormed(into.length === pageInfoBytes, 'PAGE_INFO: not 112 bytes')
  wellFormed(hasMeasuredContents(page.type) === (contents !== null), `PAGE_INFO: contents of a ${page.type} page`)
  into.fill(0)
  // Runs for every page of a launch, and `writeFields` takes three times as long.
  const view = new DataView(into.buffer, into.byteOffset, into.byteLength)
  into.set(digest, PAGE_INFO.digestCurrent[0])
  if (contents !== null) into.set(contents, PAGE_INFO.contents[0])
  view.setUint16(PAGE_INFO.length[0], pageInfoBytes, true)
  view.setUint8(PAGE_INFO.pageType[0], PAGE_TYPES[page.type])
  view.setBigUint64(PAGE_INFO.gpa[0], page.gpa, true)
}
