// A relying party's policy for SNP reports: the one table of its fields, and the JSON Schema made from it. Pure.
// To add a field, add a row here, with `whenMissing`, and its check in appraise.ts.

import { PRODUCTS, type Product } from '../amd/product.ts'
import { type TCB_LAYOUTS, tcbComponentsOf } from '../amd/tcb.ts'
import { KEY_BITS, PLATFORM_BITS, POLICY_BITS } from '../report/bits.ts'
import {
  type BitRule,
  type BitRules,
  bits,
  chipId,
  type Field,
  hex,
  integer,
  type Kind,
  listOf,
  object,
  oneOf,
  orAny,
  type UnknownRule,
} from './kinds.ts'

/** Least version of each component that the product has. */
type TcbMinimum<P extends Product> = Readonly<Record<NonNullable<(typeof TCB_LAYOUTS)[P][number]>, number | 'any'>>

/** Components are compared one by one; versions of different products have nothing in common. */
export type TcbMinimums = { readonly [P in Product]: TcbMinimum<P> | 'any' }

/** `strict`: the value in strictPolicy, in its JSON form. */
type PolicyField<T> = Field<T> & { readonly strict: unknown }

const format = 'strongroom/snp-policy/v1'
const copyBits = 'copy it from a policy that is whole, and change the rules of its bits'
const u8 = integer(255)

/** 'any' skips a check. */
export const POLICY_FIELDS = {
  format: { ...oneOf([format]), schema: { const: format }, remedy: `write "${format}"`, strict: format },
  products: field(orAny(listOf(oneOf(PRODUCTS)))),
  signers: field(orAny(listOf(oneOf(['vcek', 'vlek'])))),
  /** The guest policy: what the guest's owner allows the host. 'required': the bit must be set; 'forbidden': clear. */
  guestPolicy: {
    ...bits(POLICY_BITS),
    remedy: copyBits,
    strict: rules(POLICY_BITS, {
      reservedOne: 'required',
      migrate: 'forbidden',
      debug: 'forbidden',
      unknown: 'forbidden',
    }),
  },
  platformInfo: { ...bits(PLATFORM_BITS), remedy: copyBits, strict: rules(PLATFORM_BITS, { unknown: 'any' }) },
  /** The flags of key_info. Its signing key is `signers`. */
  keyInfo: field(bits(KEY_BITS), rules(KEY_BITS, { unknown: 'forbidden' })),
  /** The bytes that the report's version reserves, in its signed and unsigned parts. */
  reservedBytes: field(oneOf(['zero', 'any']), 'zero'),
  vmpls: field(orAny(listOf(integer(3))), [0]),
  measurements: field(orAny(listOf(hex(48)))),
  hostData: field(orAny(hex(32))),
  reportData: field(orAny(hex(64))),
  idKeyDigest: field(orAny(hex(48))),
  authorKeyDigest: field(orAny(hex(48))),
  chipIds: field(orAny(listOf(chipId(64)))),
  /** For REPORTED_TCB, which the VEK certifies. */
  minimumTcb: field(orAny(tcbMinimums())),
  /** For LAUNCH_TCB: a guest that old firmware launched is not made better by later updates. */
  minimumLaunchTcb: field(orAny(tcbMinimums())),
  /** For the current firmware, and for the committed one, to which the host may go back. */
  minimumFirmware: field(orAny(object({ major: u8, minor: u8, build: u8 }))),
  minimumGuestSvn: field(orAny(integer(0xffff_ffff))),
  /** 'required': CURRENT_TCB is at least COMMITTED_TCB and REPORTED_TCB, and current firmware at least committed. */
  tcbOrder: field(oneOf(['required', 'any']), 'required'),
} as const satisfies Readonly<Record<string, PolicyField<unknown>>>

export const policyKind = object(POLICY_FIELDS)

export const policySchema: { readonly [keyword: string]: unknown } = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Policy for SEV-SNP attestation reports',
  ...policyKind.schema,
}

function field<T>(kind: Kind<T>, strict: unknown = 'any'): PolicyField<T> {
  return { ...kind, strict }
}

/** 'any' for the bits that are not named. */
function rules<Name extends string>(
  table: Readonly<Record<Name, number>>,
  named: Partial<Record<NoInfer<Name>, BitRule>> & { readonly unknown: UnknownRule },
): BitRules<Name> {
  const all = Object.fromEntries(Object.keys(table).map(name => [name, 'any'])) as Record<Name, BitRule>
  return { ...all, ...named }
}

function tcbMinimums(): Kind<TcbMinimums> {
  const minimumOf = (product: Product) => {
    return orAny(object(Object.fromEntries(tcbComponentsOf(product).map(component => [component, orAny(u8)]))))
  }
  return object(
    Object.fromEntries(PRODUCTS.map(product => [product, minimumOf(product)])),
  ) as unknown as Kind<TcbMinimums>
}
