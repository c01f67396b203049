// A relying party's policy for SNP reports: the table of its fields, and the JSON Schema derived from it. Pure. To add
// a field, add a row here, with `whenMissing`, and its check in appraise.ts.

import { PRODUCTS, type Product } from '../amd/product.ts'
import { type TCB_LAYOUTS, tcbComponentsOf } from '../amd/tcb.ts'
import { KEY_BITS, PLATFORM_BITS, POLICY_BITS } from '../report/bits.ts'
import { keyDigests } from './id-keys.ts'
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
  masks,
  object,
  oneOf,
  orAny,
  text,
  type UnknownRule,
} from './kinds.ts'

/** Minimum or maximum version of each component of the product. */
type TcbMinimum<P extends Product> = Readonly<Record<NonNullable<(typeof TCB_LAYOUTS)[P][number]>, number | 'any'>>

/** Components are compared individually. Versions of different products are not comparable. */
export type TcbMinimums = { readonly [P in Product]: TcbMinimum<P> | 'any' }

/** `strict`: the value in strictPolicy, in its JSON form. */
type PolicyField<T> = Field<T> & { readonly strict: unknown }

const format = 'strongroom/snp-policy/v1'
const copyBits = 'copy it from a policy that is whole, and change the rules of its bits'
const u8 = integer(255)
const firmware = object({ major: u8, minor: u8, build: u8 })
const abi = object({ major: u8, minor: u8 })

const tcbMinimums = object(
  Object.fromEntries(
    PRODUCTS.map(product => [
      product,
      orAny(object(Object.fromEntries(tcbComponentsOf(product).map(component => [component, orAny(u8)])))),
    ]),
  ),
) as unknown as Kind<TcbMinimums>

const guidPattern = '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'

/** 'any' skips a check. */
export const POLICY_FIELDS = {
  format: { ...oneOf([format]), schema: { const: format }, remedy: `write "${format}"`, strict: format },
  products: field(orAny(listOf(oneOf(PRODUCTS)))),
  signers: field(orAny(listOf(oneOf(['vcek', 'vlek'])))),
  /**
   * The guest policy: what the guest's owner allows the host. 'required': the bit must be set. 'forbidden': it must be
   * clear.
   */
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
  /** The flags of key_info, without the signing key, which `signers` covers. */
  keyInfo: field(bits(KEY_BITS), rules(KEY_BITS, { unknown: 'forbidden' })),
  /** Reserved bytes of the report's version, in its signed and unsigned parts. */
  reservedBytes: field(oneOf(['zero', 'any']), 'zero'),
  vmpls: field(orAny(listOf(integer(3))), [0]),
  measurements: field(orAny(listOf(hex(48)))),
  hostData: field(orAny(hex(32))),
  reportData: field(orAny(hex(64))),
  /** One digest or a list. Each may be hexadecimal, or PEM of the key or of a certificate for it. */
  idKeyDigest: field(orAny(keyDigests)),
  /**
   * One digest or a list, as for `idKeyDigest`. An author key certifies ID keys, so with a trusted author the ID key
   * may be 'any'.
   */
  authorKeyDigest: field(orAny(keyDigests)),
  chipIds: field(orAny(listOf(chipId(64)))),
  /** Minimum of REPORTED_TCB, for which the VEK is certified. */
  minimumTcb: field(orAny(tcbMinimums)),
  /** Minimum of LAUNCH_TCB: later updates do not repair a guest launched by old firmware. */
  minimumLaunchTcb: field(orAny(tcbMinimums)),
  /** Minimum of the current firmware, and of the committed firmware, to which the host may roll back. */
  minimumFirmware: field(orAny(firmware)),
  minimumGuestSvn: field(orAny(integer(0xffff_ffff))),
  /** 'required': CURRENT_TCB is at least COMMITTED_TCB and REPORTED_TCB, and current firmware at least committed. */
  tcbOrder: field(oneOf(['required', 'any']), 'required'),

  reportVersions: later(listOf(integer(5, 2))),
  familyId: later(hex(16)),
  imageId: later(hex(16)),
  reportId: later(hex(32)),
  /** The migration agent's report id: all ones without an agent. */
  reportIdMa: later(hex(32)),
  /** Allowed CPUIDs. Reports of version 2 contain none. */
  processors: later(listOf(object({ family: u8, model: u8, stepping: u8 }))),
  /** Whether the platform masks its chip_id, which is then all zeros. */
  chipIdMasked: later(oneOf(['required', 'forbidden'])),
  /** Minimum ABI version that the guest policy requires from the firmware. */
  minimumPolicyAbi: later(abi),
  maximumPolicyAbi: later(abi),
  maximumGuestSvn: later(integer(0xffff_ffff)),
  maximumTcb: later(tcbMinimums),
  maximumLaunchTcb: later(tcbMinimums),
  minimumCurrentTcb: later(tcbMinimums),
  maximumCurrentTcb: later(tcbMinimums),
  /** Minimum of COMMITTED_TCB, below which the host cannot roll back. */
  minimumCommittedTcb: later(tcbMinimums),
  maximumCommittedTcb: later(tcbMinimums),
  minimumCurrentFirmware: later(firmware),
  maximumCurrentFirmware: later(firmware),
  maximumCommittedFirmware: later(firmware),
  /** Minimum build of the current and the committed firmware, whatever their major and minor version. */
  minimumBuild: later(u8),
  /** 'current': the running TCB and firmware are committed, so the host cannot roll back. */
  committedFirmware: later(oneOf(['current'])),
  /** Bits of the mitigation vectors, which reports contain from version 5: set in `required`, clear in `forbidden`. */
  launchMitigations: later(masks()),
  currentMitigations: later(masks()),
  /** Cloud providers for which a VLEK may be made. A VCEK names none, so it fails. */
  cspIds: later(listOf(text('(?!any$)[\\x20-\\x7e]{1,64}', '1 to 64 characters of ASCII'))),
  /** Maximum days since the revocation list was issued. Without a list the verdict is not good. */
  maxCrlAgeDays: later(integer(3650)),
  /** GUIDs that the host's certificate table must contain. Without a table the verdict is not good. */
  certificateEntries: later(listOf(text(guidPattern, 'a GUID in lower case'))),
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

/** Returns a field that was added after policies were in use. A policy without it means 'any'. */
function later<T>(kind: Kind<T>): PolicyField<T | 'any'> & { readonly whenMissing: 'any' } {
  return { ...orAny(kind), strict: 'any', whenMissing: 'any' }
}

/** Returns rules with 'any' for the bits that are not named. */
function rules<Name extends string>(
  table: Readonly<Record<Name, number>>,
  named: Partial<Record<NoInfer<Name>, BitRule>> & { readonly unknown: UnknownRule },
): BitRules<Name> {
  const all = Object.fromEntries(Object.keys(table).map(name => [name, 'any'])) as Record<Name, BitRule>
  return { ...all, ...named }
}
