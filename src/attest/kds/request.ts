// Requests to AMD's key distribution service, and the file name under which each response is cached. Pure. AMD 57230,
// chapter 4: GET {vcek|vlek}/v1/{product}/{hwID}?{levels}, …/cert_chain, …/crl.

import { assert } from '../../base/assert.ts'
import { toHex } from '../../base/bytes.ts'
import type { Product } from '../amd/product.ts'
import type { Tcb } from '../amd/tcb.ts'
import { PRODUCT_NAMES } from '../amd/trusted-roots.ts'
import { HW_ID_BYTES } from '../amd/vek-extensions.ts'

/** Identifies a VCEK: the chip at one TCB, by CHIP_ID and REPORTED_TCB of its reports. */
export type VcekWanted = { readonly product: Product; readonly chipId: Uint8Array; readonly tcb: Tcb }

/** The tree of certificates that a chain or a CRL belongs to. */
export type Tree = 'vcek' | 'vlek'

export type KdsRequest = {
  /** Path below the base URL. */
  readonly path: string
  /** File name in the cache directory. */
  readonly file: string
  readonly bodyBytesMax: number
}

/** Limits for responses of about 1.4, 4.6 and 1 KiB. */
const BODY_BYTES_MAX = { vcek: 16 * 1024, chain: 32 * 1024, crl: 64 * 1024 } as const

export function vcekRequest({ product, chipId, tcb }: VcekWanted): KdsRequest {
  const hwId = toHex(hwIdOf(product, chipId))
  assert((tcb.fmc !== null) === (product === 'turin'), 'only Turin has an FMC')
  const levels = [tcb.bootloader, tcb.tee, tcb.snp, tcb.microcode]
  const [blSPL, teeSPL, snpSPL, ucodeSPL] = levels.map(String)
  const fmcPart = tcb.fmc === null ? '' : `fmcSPL=${tcb.fmc}&`
  const query = `${fmcPart}blSPL=${blSPL}&teeSPL=${teeSPL}&snpSPL=${snpSPL}&ucodeSPL=${ucodeSPL}`
  const [name] = PRODUCT_NAMES[product]
  return {
    path: `/vcek/v1/${name}/${hwId}?${query}`,
    file: `vcek-${product}-${hwId}-${[...(tcb.fmc === null ? [] : [tcb.fmc]), ...levels].join('.')}.der`,
    bodyBytesMax: BODY_BYTES_MAX.vcek,
  }
}

export function chainRequest(product: Product, tree: Tree): KdsRequest {
  const [name] = PRODUCT_NAMES[product]
  return {
    path: `/${tree}/v1/${name}/cert_chain`,
    file: `chain-${tree}-${product}.pem`,
    bodyBytesMax: BODY_BYTES_MAX.chain,
  }
}

export function crlRequest(product: Product, tree: Tree): KdsRequest {
  const [name] = PRODUCT_NAMES[product]
  return { path: `/${tree}/v1/${name}/crl`, file: `crl-${tree}-${product}.der`, bodyBytesMax: BODY_BYTES_MAX.crl }
}

/**
 * Returns the hwID: all of CHIP_ID, or its first 8 bytes on Turin. A masked CHIP_ID is all zeros and identifies no
 * chip.
 */
export function hwIdOf(product: Product, chipId: Uint8Array): Uint8Array {
  assert(chipId.length === HW_ID_BYTES.long, 'CHIP_ID has 64 bytes')
  return chipId.subarray(0, product === 'turin' ? HW_ID_BYTES.short : HW_ID_BYTES.long)
}

/** Parses Retry-After to milliseconds (RFC 9110 section 10.2.3: seconds or a date); null if absent or unreadable. */
export function retryAfterMs(header: string | null, nowMs: number): number | null {
  if (header === null) return null
  if (/^\d{1,9}$/.test(header)) return Number(header) * 1000
  const at = Date.parse(header)
  return Number.isNaN(at) ? null : Math.max(0, at - nowMs)
}
