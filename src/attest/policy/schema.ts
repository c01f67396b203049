// The JSON form of a relying party's policy for SNP reports: JSON Schema 2020-12 and the types beside it. Pure.
// Every field is required; 'any' skips a check on purpose.

import { PRODUCTS, type Product } from '../amd/product.ts'
import { type TCB_LAYOUTS, tcbComponentsOf } from '../amd/tcb.ts'
import { KEY_BITS, PLATFORM_BITS, POLICY_BITS, type Signer } from '../report/bits.ts'

export const policyFormat = 'strongroom/snp-policy/v1'

/** An empty or an endless list is a mistake. */
export const policyListCountMax = 1024

export type BitRule = 'required' | 'forbidden' | 'any'
/** For bits that have no name yet. */
export type UnknownRule = 'forbidden' | 'any'

export const bitRules: readonly BitRule[] = ['required', 'forbidden', 'any']
export const unknownRules: readonly UnknownRule[] = ['forbidden', 'any']
export const policySigners: readonly Exclude<Signer, 'none'>[] = ['vcek', 'vlek']

/** Least version of each component that the product has. */
export type TcbMinimum<P extends Product> = Readonly<
  Record<NonNullable<(typeof TCB_LAYOUTS)[P][number]>, number | 'any'>
>

/** Components are compared one by one; versions of different products have nothing in common. */
export type TcbMinimums = { readonly [P in Product]: TcbMinimum<P> | 'any' }

/** Sizes of the fields that are given as lower-case hexadecimal. */
export const HEX_SIZES = {
  measurements: 48,
  hostData: 32,
  reportData: 64,
  idKeyDigest: 48,
  authorKeyDigest: 48,
  chipIds: 64,
} as const

type JsonSchema = { readonly [keyword: string]: unknown }

const u8: JsonSchema = { type: 'integer', minimum: 0, maximum: 255 }
const u32: JsonSchema = { type: 'integer', minimum: 0, maximum: 0xffff_ffff }

export const policySchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Policy for SEV-SNP attestation reports',
  ...strict({
    format: { const: policyFormat },
    products: orAny(listOf({ enum: PRODUCTS })),
    signers: orAny(listOf({ enum: policySigners })),
    guestPolicy: bits(Object.keys(POLICY_BITS)),
    platformInfo: bits(Object.keys(PLATFORM_BITS)),
    keyInfo: bits(Object.keys(KEY_BITS)),
    reservedBytes: { enum: ['zero', 'any'] },
    vmpls: orAny(listOf({ type: 'integer', minimum: 0, maximum: 3 })),
    measurements: orAny(listOf(hex(HEX_SIZES.measurements))),
    hostData: orAny(hex(HEX_SIZES.hostData)),
    reportData: orAny(hex(HEX_SIZES.reportData)),
    idKeyDigest: orAny(hex(HEX_SIZES.idKeyDigest)),
    authorKeyDigest: orAny(hex(HEX_SIZES.authorKeyDigest)),
    // All zeros is the chip_id of every masked chip.
    chipIds: orAny(listOf({ type: 'string', pattern: `^(?!0+$)[0-9a-f]{${HEX_SIZES.chipIds * 2}}$` })),
    minimumTcb: orAny(tcbMinimums()),
    minimumLaunchTcb: orAny(tcbMinimums()),
    minimumFirmware: orAny(strict({ major: u8, minor: u8, build: u8 })),
    minimumGuestSvn: orAny(u32),
    tcbOrder: { enum: ['required', 'any'] },
  }),
} as const satisfies JsonSchema

function strict(properties: Readonly<Record<string, JsonSchema>>): JsonSchema {
  return { type: 'object', properties, required: Object.keys(properties), additionalProperties: false }
}

function orAny(schema: JsonSchema): JsonSchema {
  return { anyOf: [{ const: 'any' }, schema] }
}

function listOf(items: JsonSchema): JsonSchema {
  return { type: 'array', items, minItems: 1, maxItems: policyListCountMax, uniqueItems: true }
}

function hex(sizeBytes: number): JsonSchema {
  return { type: 'string', pattern: `^[0-9a-f]{${sizeBytes * 2}}$` }
}

function bits(names: readonly string[]): JsonSchema {
  const rules = names.map(name => [name, { enum: bitRules }] as const)
  return strict({ ...Object.fromEntries(rules), unknown: { enum: unknownRules } })
}

function tcbMinimums(): JsonSchema {
  const ofProduct = (product: Product) => {
    return orAny(strict(Object.fromEntries(tcbComponentsOf(product).map(component => [component, orAny(u8)]))))
  }
  return strict(Object.fromEntries(PRODUCTS.map(product => [product, ofProduct(product)])))
}
