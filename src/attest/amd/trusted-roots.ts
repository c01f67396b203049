// Trusted roots, decoded once. Pure: the cache of decoded roots saves time and changes no result.

import { derBlocks, type PemOrDer } from '../encoding/pem.ts'
import { wellFormed } from '../malformed.ts'
import { type Certificate, decodeCertificate, isSame } from '../x509/certificate.ts'
import type { Product } from './product.ts'
import { AMD_ROOTS, type TrustedRoot, type WholeRoot } from './roots.ts'

export type DecodedRoot = {
  readonly product: Product
  /** True for every root that is not byte for byte one of AMD_ROOTS, whatever names it bears. */
  readonly simulated: boolean
  readonly ark: Certificate
  readonly ask: Certificate
  /** Null: the root vouches for no VLEK. */
  readonly asvk: Certificate | null
}

const decoded = new WeakMap<TrustedRoot, DecodedRoot>()

/** Throws Malformed: a root that cannot be read is a mistake of the relying party's. */
export function decodeRoot(root: WholeRoot): DecodedRoot & { readonly asvk: Certificate }
export function decodeRoot(root: TrustedRoot): DecodedRoot
export function decodeRoot(root: TrustedRoot): DecodedRoot {
  const known = decoded.get(root)
  if (known !== undefined) return known
  const ark = onlyOne(root.ark, `the ${root.product} ARK`)
  const made = {
    product: root.product,
    simulated: !isAmdRoot(root.product, ark),
    ark,
    ask: onlyOne(root.ask, `the ${root.product} ASK`),
    asvk: root.asvk === null ? null : onlyOne(root.asvk, `the ${root.product} ASVK`),
  }
  decoded.set(root, made)
  return made
}

/** Product names in AMD's VEKs, without their stepping. Siena and Bergamo are certified below the Genoa root. */
export const PRODUCT_NAMES = {
  milan: ['Milan'],
  genoa: ['Genoa', 'Siena', 'Bergamo'],
  turin: ['Turin'],
} as const satisfies Record<Product, readonly string[]>

/** Null for a name of no known product. */
export function productOfName(productName: string): Product | null {
  const [line = '', stepping, ...more] = productName.split('-')
  const isName = more.length === 0 && (stepping === undefined || /^[A-Z][0-9]$/.test(stepping))
  const products = Object.keys(PRODUCT_NAMES) as Product[]
  const names = (product: Product): readonly string[] => PRODUCT_NAMES[product]
  return isName ? (products.find(product => names(product).includes(line)) ?? null) : null
}

/** AMD's root of one product is not its root for another product. */
function isAmdRoot(product: Product, ark: Certificate): boolean {
  return AMD_ROOTS.some(root => root.product === product && isSame(onlyOne(root.ark, 'an AMD ARK').der, ark.der))
}

function onlyOne(input: PemOrDer, what: string): Certificate {
  const [der, ...more] = derBlocks(input, 'CERTIFICATE', what)
  wellFormed(der !== undefined && more.length === 0, `${what}: not exactly one certificate`)
  return decodeCertificate(der)
}
