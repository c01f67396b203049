// PAGE_INFO, the record by which SNP_LAUNCH_UPDATE extends the launch digest (AMD 56860 rev 1.58, 8.17.2). Pure.

import { type Layout, layoutBytes, writeFields } from '../encoding/layout.ts'
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

/** Types of launched pages. For the last four the digest covers type and address, but not the contents. */
export const PAGE_TYPES = { normal: 1, vmsa: 2, zero: 3, unmeasured: 4, secrets: 5, cpuid: 6 } as const

export type PageType = keyof typeof PAGE_TYPES

export function hasMeasuredContents(type: PageType): boolean {
  return type === 'normal' || type === 'vmsa'
}

const noContents = new Uint8Array(PAGE_INFO.contents[1])

export type PageInfo = { readonly type: PageType; readonly gpa: bigint }

/** Overwrites a record. `digest` (so far) and `contents` are 48 bytes each; `contents` is null for types whose contents are not measured. */
export function putPageInfo(into: Uint8Array, page: PageInfo, digest: Uint8Array, contents: Uint8Array | null): void {
  wellFormed(into.length === pageInfoBytes, 'PAGE_INFO: not 112 bytes')
  wellFormed(hasMeasuredContents(page.type) === (contents !== null), `PAGE_INFO: contents of a ${page.type} page`)
  into.fill(0)
  writeFields('PAGE_INFO', into, PAGE_INFO, {
    digestCurrent: digest,
    contents: contents ?? noContents,
    length: pageInfoBytes,
    pageType: PAGE_TYPES[page.type],
    gpa: page.gpa,
  })
}
