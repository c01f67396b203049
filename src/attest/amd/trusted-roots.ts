// Trusted roots, decoded once. Pure: the cache of decoded roots saves time and changes no result.

import { derBlocks, type PemOrDer } from '../encoding/pem.ts'
import { wellFormed } from '../malformed.ts'
import { type Certificate, decodeCertificate, isSame } from '../x509/certificate.ts'
import type { Product } from './product.ts'
import { AMD_ROOTS, type TrustedRoot, type WholeRoot } from './roots.ts'

export type DecodedRoot = {
  readonly product: Product
  /** True unless the root equals one of AMD_ROOTS byte for byte, whatever its names. */
  readonly simulated: boolean
  /** The DER of `ark`, available without decoding the certificate. */
  readonly arkDer: Uint8Array
  readonly ark: Certificate
  readonly ask: Certificate
  /** Null if the root certifies no VLEK. */
  readonly asvk: Certificate | null
}

const decoded = new WeakMap<TrustedRoot, DecodedRoot>()

/** Decodes a root. Throws Malformed if it is unreadable, which is a mistake of the relying party. */
export function decodeRoot(root: WholeRoot): DecodedRoot & { readonly asvk: Certificate }
export function decodeRoot(root: TrustedRoot): DecodedRoot
export function decodeRoot(root: TrustedRoot): DecodedRoot {
  const known = decoded.get(root)
  if (known !== undefined) return known
  const own = AMD_ROOTS.find(amd => amd === root)
  const made = own === undefined ? decodeWhole(root) : new AmdRoot(own)
  decoded.set(root, made)
  return made
}

function decodeWhole(root: TrustedRoot): DecodedRoot {
  const ark = onlyOne(root.ark, `the ${root.product} ARK`)
  return {
    product: root.product,
    simulated: !isAmdRoot(root.product, ark.der),
    arkDer: ark.der,
    ark,
    ask: onlyOne(root.ask, `the ${root.product} ASK`),
    asvk: root.asvk === null ? null : onlyOne(root.asvk, `the ${root.product} ASVK`),
  }
}

/** One of AMD_ROOTS. Decodes each certificate on first use, because evidence needs only one of the three roots. */
class AmdRoot implements DecodedRoot {
  readonly simulated = false
  readonly product: Product
  readonly arkDer: Uint8Array
  readonly #root: WholeRoot
  #ark: Certificate | null = null
  #ask: Certificate | null = null
  #asvk: Certificate | null = null

  constructor(root: WholeRoot) {
    this.#root = root
    this.product = root.product
    this.arkDer = oneDer(root.ark, `the ${root.product} ARK`)
  }

  get ark(): Certificate {
    this.#ark ??= decodeCertificate(this.arkDer)
    return this.#ark
  }

  get ask(): Certificate {
    this.#ask ??= onlyOne(this.#root.ask, `the ${this.product} ASK`)
    return this.#ask
  }

  get asvk(): Certificate {
    this.#asvk ??= onlyOne(this.#root.asvk, `the ${this.product} ASVK`)
    return this.#asvk
  }
}

/** Product names in AMD's VEKs, without their stepping. Siena and Bergamo are certified below the Genoa root. */
export const PRODUCT_NAMES = {
  milan: ['Milan'],
  genoa: ['Genoa', 'Siena', 'Bergamo'],
  turin: ['Turin'],
} as const satisfies Record<Product, readonly string[]>

/** Returns the product of a name in a VEK; null if the name belongs to no known product. */
export function productOfName(productName: string): Product | null {
  const [line = '', stepping, ...more] = productName.split('-')
  const isName = more.length === 0 && (stepping === undefined || /^[A-Z][0-9]$/.test(stepping))
  const products = Object.keys(PRODUCT_NAMES) as Product[]
  const names = (product: Product): readonly string[] => PRODUCT_NAMES[product]
  return isName ? (products.find(product => names(product).includes(line)) ?? null) : null
}

/** Reports whether the ARK is AMD's root of this product. AMD's root of another product does not count. */
function isAmdRoot(product: Product, arkDer: Uint8Array): boolean {
  return AMD_ROOTS.some(root => root.product === product && isSame(oneDer(root.ark, 'an AMD ARK'), arkDer))
}

function onlyOne(input: PemOrDer, what: string): Certificate {
  return decodeCertificate(oneDer(input, what))
}

function oneDer(input: PemOrDer, what: string): Uint8Array {
  const [der, ...more] = derBlocks(input, 'CERTIFICATE', what)
  wellFormed(der !== undefined && more.length === 0, `${what}: not exactly one certificate`)
  return der
}
