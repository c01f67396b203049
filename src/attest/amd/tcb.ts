// TCB_VERSION: the security version of each firmware component, in a u64 whose layout differs by product. Pure.
// AMD 56860 rev 1.58, section 2.2. Compare component by component; the u64 as a whole has no order.

import { Malformed, wellFormed } from '../malformed.ts'
import type { Product } from './product.ts'

/** TCB_VERSION as in the report, little-endian. Its layout depends on the product. */
export type RawTcb = bigint

/** The security version of each component, 0 to 255. `fmc` is null except on Turin. */
export type Tcb = {
  readonly bootloader: number
  readonly tee: number
  readonly snp: number
  readonly microcode: number
  readonly fmc: number | null
}

export const TCB_COMPONENTS = ['fmc', 'bootloader', 'tee', 'snp', 'microcode'] as const

export type TcbComponent = (typeof TCB_COMPONENTS)[number]

/** Component of each byte, lowest byte first; null marks a reserved byte, which must be zero. */
export const TCB_LAYOUTS = {
  milan: ['bootloader', 'tee', null, null, null, null, 'snp', 'microcode'],
  genoa: ['bootloader', 'tee', null, null, null, null, 'snp', 'microcode'],
  turin: ['fmc', 'bootloader', 'tee', 'snp', null, null, null, 'microcode'],
} as const satisfies Record<Product, readonly (TcbComponent | null)[]>

/** Returns the components of a product in the order of its layout. */
export function tcbComponentsOf(product: Product): TcbComponent[] {
  return TCB_LAYOUTS[product].flatMap(component => (component === null ? [] : [component]))
}

/** Decodes a TCB. Throws Malformed if a reserved byte is not zero: the bytes belong to another or a newer product. */
export function decodeTcb(raw: RawTcb, product: Product): Tcb {
  wellFormed(raw >= 0n && raw <= 0xffff_ffff_ffff_ffffn, 'TCB: not a u64')
  const tcb: Record<TcbComponent, number | null> = { fmc: null, bootloader: 0, tee: 0, snp: 0, microcode: 0 }
  TCB_LAYOUTS[product].forEach((component, at) => {
    const byte = Number((raw >> BigInt(at * 8)) & 0xffn)
    if (component !== null) tcb[component] = byte
    else if (byte !== 0) throw new Malformed(`TCB: byte ${at} is reserved on ${product} but ${byte}`)
  })
  return tcb as Tcb
}

/** Reports whether every component of `tcb` is at least that of `other`. Both must be of one product. */
export function isTcbAtLeast(tcb: Tcb, other: Tcb): boolean {
  return TCB_COMPONENTS.every(component => (tcb[component] ?? 0) >= (other[component] ?? 0))
}

/** Formats a TCB for people: `fmc 0, bootloader 1, …`. */
export function tcbText(tcb: Tcb): string {
  return TCB_COMPONENTS.filter(component => tcb[component] !== null)
    .map(component => `${component} ${tcb[component]}`)
    .join(', ')
}
