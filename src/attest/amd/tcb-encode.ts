// Writes a TCB_VERSION (tcb.ts) for simulations and certificate requests. Pure.

import { wellFormed } from '../malformed.ts'
import type { Product } from './product.ts'
import { type RawTcb, TCB_LAYOUTS, type Tcb, type TcbComponent } from './tcb.ts'

/**
 * Encodes a TCB for a product. Throws Malformed if a component is out of range, missing, or absent from the product.
 */
export function encodeTcb(tcb: Tcb, product: Product): RawTcb {
  const layout: readonly (TcbComponent | null)[] = TCB_LAYOUTS[product]
  wellFormed((tcb.fmc === null) === !layout.includes('fmc'), `TCB: fmc does not fit ${product}`)
  return layout.reduce((raw, component, at) => {
    const value = component === null ? 0 : (tcb[component] ?? 0)
    wellFormed(Number.isInteger(value) && value >= 0 && value <= 255, `TCB: ${component} is not 0 to 255`)
    return raw | (BigInt(value) << BigInt(at * 8))
  }, 0n)
}
