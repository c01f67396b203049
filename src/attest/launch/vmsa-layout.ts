// The VMSA, a virtual processor's initial state (AMD APM volume 2, table B-4), and SEV_FEATURES (15.34.10). Pure.

import { type Layout, readFields, type Values, writeFields } from '../encoding/layout.ts'
import { wellFormed } from '../malformed.ts'

const vmsaBytes = 4096

/** Registers of the save area. [offset, size]; little-endian. All other bytes are zero at the start. */
export const VMSA_FIELDS = {
  vmpl: [0x0ca, 1],
  cpl: [0x0cb, 1],
  efer: [0x0d0, 8],
  cr4: [0x148, 8],
  cr3: [0x150, 8],
  cr0: [0x158, 8],
  dr7: [0x160, 8],
  dr6: [0x168, 8],
  rflags: [0x170, 8],
  rip: [0x178, 8],
  rsp: [0x1d8, 8],
  rax: [0x1f8, 8],
  pat: [0x268, 8],
  rcx: [0x308, 8],
  rdx: [0x310, 8],
  rbx: [0x318, 8],
  rbp: [0x328, 8],
  rsi: [0x330, 8],
  rdi: [0x338, 8],
  sevFeatures: [0x3b0, 8],
  xcr0: [0x3e8, 8],
  mxcsr: [0x408, 4],
  x87Ftw: [0x40c, 2],
  x87Fsw: [0x40e, 2],
  x87Fcw: [0x410, 2],
} as const satisfies Layout

/** Segment registers, 16 bytes each: u16 selector, u16 attributes, u32 limit, u64 base. */
export const VMSA_SEGMENTS = {
  es: 0x000,
  cs: 0x010,
  ss: 0x020,
  ds: 0x030,
  fs: 0x040,
  gs: 0x050,
  gdtr: 0x060,
  ldtr: 0x070,
  idtr: 0x080,
  tr: 0x090,
} as const satisfies Record<string, number>

const SEGMENT = { selector: [0, 2], attributes: [2, 2], limit: [4, 4], base: [8, 8] } as const satisfies Layout

export type VmsaSegmentName = keyof typeof VMSA_SEGMENTS
export type VmsaSegment = Values<typeof SEGMENT>

export type Vmsa = {
  readonly fields: Values<typeof VMSA_FIELDS>
  readonly segments: Readonly<Record<VmsaSegmentName, VmsaSegment>>
}

/** SEV_FEATURES by name. */
const SEV_FEATURES = {
  snpActive: 1n << 0n,
  vTom: 1n << 1n,
  reflectVc: 1n << 2n,
  restrictedInjection: 1n << 3n,
  alternateInjection: 1n << 4n,
  debugSwap: 1n << 5n,
  preventHostIbs: 1n << 6n,
  btbIsolation: 1n << 7n,
  vmplSupervisorShadowStack: 1n << 8n,
  secureTsc: 1n << 9n,
  vmgexitParameter: 1n << 10n,
  pmcVirtualization: 1n << 11n,
  ibsVirtualization: 1n << 12n,
  guestInterceptControl: 1n << 13n,
  vmsaRegisterProtection: 1n << 14n,
  smtProtection: 1n << 15n,
  secureAvic: 1n << 16n,
  ibpbOnEntry: 1n << 21n,
} as const satisfies Record<string, bigint>

export type SevFeature = keyof typeof SEV_FEATURES

/** The bits with which KVM can launch. This library cannot predict a launch with any other bit. */
const LAUNCH_FEATURES = ['snpActive', 'debugSwap', 'secureTsc'] as const satisfies readonly SevFeature[]

/** Returns the bits of these features. */
export function sevFeatures(...names: readonly SevFeature[]): bigint {
  return names.reduce((bits, name) => bits | SEV_FEATURES[name], 0n)
}

/** Returns the names of the bits. Throws Malformed for a bit without a name. */
export function sevFeatureNames(bits: bigint): SevFeature[] {
  const names = (Object.keys(SEV_FEATURES) as SevFeature[]).filter(name => (bits & SEV_FEATURES[name]) !== 0n)
  wellFormed(sevFeatures(...names) === bits, `SEV_FEATURES 0x${bits.toString(16)}: a bit without a name`)
  return names
}

/** Throws Malformed unless SNP is active and KVM launches with every other bit. */
export function checkLaunchFeatures(bits: bigint): void {
  wellFormed((bits & SEV_FEATURES.snpActive) !== 0n, `SEV_FEATURES 0x${bits.toString(16)}: SNP is not active`)
  const other = sevFeatureNames(bits).find(name => !(LAUNCH_FEATURES as readonly SevFeature[]).includes(name))
  wellFormed(other === undefined, `SEV_FEATURES 0x${bits.toString(16)}: ${other} is not offered at launch`)
}

/** Encodes a state as a page. Bytes outside the registers of the tables are zero. */
export function writeVmsa({ fields, segments }: Vmsa): Uint8Array {
  const page = new Uint8Array(vmsaBytes)
  for (const name of segmentNames) {
    writeFields(`VMSA ${name}`, page.subarray(VMSA_SEGMENTS[name]), SEGMENT, segments[name])
  }
  writeFields('VMSA', page, VMSA_FIELDS, fields)
  return page
}

/** Reads the registers of the tables. Ignores other registers, which `writeVmsa` would lose. */
export function readVmsa(page: Uint8Array): Vmsa {
  wellFormed(page.length === vmsaBytes, `VMSA: ${page.length} bytes, not ${vmsaBytes}`)
  const segments = segmentNames.map(name => {
    return [name, readFields(`VMSA ${name}`, page.subarray(VMSA_SEGMENTS[name]), SEGMENT)] as const
  })
  return {
    fields: readFields('VMSA', page, VMSA_FIELDS),
    segments: Object.fromEntries(segments) as Vmsa['segments'],
  }
}

/** Returns a copy of the page with these registers changed and all other bytes kept. */
export function changeVmsa(page: Uint8Array, changes: Partial<Vmsa['fields']>): Uint8Array {
  wellFormed(page.length === vmsaBytes, `VMSA: ${page.length} bytes, not ${vmsaBytes}`)
  const changed = page.slice()
  writeFields('VMSA', changed, VMSA_FIELDS, changes)
  return changed
}

const segmentNames = Object.keys(VMSA_SEGMENTS) as VmsaSegmentName[]
