// A relying party's policy for SNP reports, from JSON and back. Pure. schema.ts is its JSON form, appraise.ts applies it.

import { fromHex, toHex, utf8 } from '../../base/bytes.ts'
import { PRODUCTS, type Product } from '../amd/product.ts'
import { tcbComponentsOf } from '../amd/tcb.ts'
import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import {
  KEY_BITS,
  type KeyBit,
  PLATFORM_BITS,
  type PlatformBit,
  POLICY_BITS,
  type PolicyBit,
  type Signer,
} from '../report/bits.ts'
import type { FirmwareVersion } from '../report/report.ts'
import {
  type BitRule,
  bitRules,
  HEX_SIZES,
  policyFormat,
  policyListCountMax,
  policySigners,
  type TcbMinimums,
  type UnknownRule,
  unknownRules,
} from './schema.ts'

/** 'any' skips a check. No field is optional: a missing one is an error. */
export type Policy = {
  readonly format: typeof policyFormat
  readonly products: readonly Product[] | 'any'
  readonly signers: readonly Signer[] | 'any'
  /** The guest policy: what the guest's owner allows the host. A 'required' bit must be set, a 'forbidden' one must not. */
  readonly guestPolicy: Readonly<Record<PolicyBit, BitRule>> & { readonly unknown: UnknownRule }
  readonly platformInfo: Readonly<Record<PlatformBit, BitRule>> & { readonly unknown: UnknownRule }
  /** The flags of key_info. Its signing key is `signers`. */
  readonly keyInfo: Readonly<Record<KeyBit, BitRule>> & { readonly unknown: UnknownRule }
  /** The bytes that the report's version reserves, in its signed and unsigned parts. */
  readonly reservedBytes: 'zero' | 'any'
  readonly vmpls: readonly number[] | 'any'
  readonly measurements: readonly Uint8Array[] | 'any'
  readonly hostData: Uint8Array | 'any'
  readonly reportData: Uint8Array | 'any'
  readonly idKeyDigest: Uint8Array | 'any'
  readonly authorKeyDigest: Uint8Array | 'any'
  readonly chipIds: readonly Uint8Array[] | 'any'
  /** For REPORTED_TCB, which the VEK certifies. */
  readonly minimumTcb: TcbMinimums | 'any'
  /** For LAUNCH_TCB: a guest that old firmware launched is not made better by later updates. */
  readonly minimumLaunchTcb: TcbMinimums | 'any'
  /** For the current firmware, and for the committed one, to which the host may go back. */
  readonly minimumFirmware: FirmwareVersion | 'any'
  readonly minimumGuestSvn: number | 'any'
  /** 'required': no component of CURRENT_TCB is below COMMITTED_TCB or REPORTED_TCB, nor the current firmware older than the committed. */
  readonly tcbOrder: 'required' | 'any'
}

/**
 * The command line's default: no debug, no migration, VMPL 0, and nothing that firmware of these versions never writes: unknown bits of
 * the guest policy and key_info, reserved bytes, TCBs out of order. All else is 'any', measurement included.
 */
export function strictPolicy(): Policy {
  return {
    format: policyFormat,
    products: 'any',
    signers: 'any',
    guestPolicy: {
      smt: 'any',
      reservedOne: 'required',
      migrate: 'forbidden',
      debug: 'forbidden',
      singleSocket: 'any',
      cxl: 'any',
      aes256Xts: 'any',
      raplOff: 'any',
      ciphertextHiding: 'any',
      pageSwapOff: 'any',
      unknown: 'forbidden',
    },
    platformInfo: {
      smt: 'any',
      tsme: 'any',
      ecc: 'any',
      raplOff: 'any',
      ciphertextHiding: 'any',
      aliasCheck: 'any',
      iommuWriteSafe: 'any',
      tio: 'any',
      unknown: 'any',
    },
    keyInfo: { authorKeyEnabled: 'any', maskChipKey: 'any', unknown: 'forbidden' },
    reservedBytes: 'zero',
    vmpls: [0],
    measurements: 'any',
    hostData: 'any',
    reportData: 'any',
    idKeyDigest: 'any',
    authorKeyDigest: 'any',
    chipIds: 'any',
    minimumTcb: 'any',
    minimumLaunchTcb: 'any',
    minimumFirmware: 'any',
    minimumGuestSvn: 'any',
    tcbOrder: 'required',
  }
}

const fieldNames = Object.keys(strictPolicy()) as (keyof Policy)[]

/**
 * Takes the text, in which no name may stand twice, or what a strict reader made of it: JSON.parse takes the last of two without a word.
 * Throws Malformed naming the field, as in `policy.guestPolicy.debug: …`.
 */
export function parsePolicy(json: unknown): Policy {
  const text = typeof json === 'string' ? utf8(json) : json
  const policy = record(text instanceof Uint8Array ? parsedJson('policy', text) : json, 'policy', fieldNames)
  const field = <T>(name: keyof Policy, parse: Parse<T>) => parse(policy[name], `policy.${name}`)
  return {
    format: field('format', oneOf([policyFormat])),
    products: field('products', orAny(listOf(oneOf(PRODUCTS)))),
    signers: field('signers', orAny(listOf(oneOf(policySigners)))),
    guestPolicy: field('guestPolicy', bits(Object.keys(POLICY_BITS) as PolicyBit[])),
    platformInfo: field('platformInfo', bits(Object.keys(PLATFORM_BITS) as PlatformBit[])),
    keyInfo: field('keyInfo', bits(Object.keys(KEY_BITS) as KeyBit[])),
    reservedBytes: field('reservedBytes', oneOf(['zero', 'any'])),
    vmpls: field('vmpls', orAny(listOf(integer(3)))),
    measurements: field('measurements', orAny(listOf(hex(HEX_SIZES.measurements)))),
    hostData: field('hostData', orAny(hex(HEX_SIZES.hostData))),
    reportData: field('reportData', orAny(hex(HEX_SIZES.reportData))),
    idKeyDigest: field('idKeyDigest', orAny(hex(HEX_SIZES.idKeyDigest))),
    authorKeyDigest: field('authorKeyDigest', orAny(hex(HEX_SIZES.authorKeyDigest))),
    chipIds: field('chipIds', orAny(listOf(chipId))),
    minimumTcb: field('minimumTcb', orAny(tcbMinimums)),
    minimumLaunchTcb: field('minimumLaunchTcb', orAny(tcbMinimums)),
    minimumFirmware: field('minimumFirmware', orAny(firmware)),
    minimumGuestSvn: field('minimumGuestSvn', orAny(integer(0xffff_ffff))),
    tcbOrder: field('tcbOrder', oneOf(['required', 'any'])),
  }
}

/** The JSON form, for JSON.stringify. parsePolicy gives the same policy back. */
export function encodePolicy(policy: Policy): { readonly [field: string]: unknown } {
  const text = (value: unknown): unknown => {
    if (value instanceof Uint8Array) return toHex(value)
    if (Array.isArray(value)) return value.map(text)
    return value
  }
  return Object.fromEntries(fieldNames.map(name => [name, text(policy[name])]))
}

type Parse<T> = (value: unknown, path: string) => T

function record(value: unknown, path: string, names: readonly string[]): Readonly<Record<string, unknown>> {
  wellFormed(typeof value === 'object' && value !== null && !Array.isArray(value), `${path}: not an object`)
  for (const name of names)
    wellFormed(Object.hasOwn(value, name), `${path}.${name}: it is missing; ${whatToWrite(path, name)}`)
  for (const name of Object.keys(value)) wellFormed(names.includes(name), `${path}.${name.slice(0, 64)}: unknown field`)
  return value as Record<string, unknown>
}

/** For most fields 'any' is a value; these have others. */
function whatToWrite(path: string, name: string): string {
  if (path === 'policy' && name === 'format') return `write "${policyFormat}"`
  const isBits = path === 'policy' && (name === 'guestPolicy' || name === 'platformInfo')
  if (isBits) return 'copy it from a policy that is whole, and change the rules of its bits'
  return 'write what you accept, or "any" to skip this check'
}

function orAny<T>(parse: Parse<T>): Parse<T | 'any'> {
  return (value, path) => (value === 'any' ? 'any' : parse(value, path))
}

function oneOf<const T extends string>(values: readonly T[]): Parse<T> {
  return (value, path) => {
    const found = values.find(item => item === value)
    wellFormed(found !== undefined, `${path}: not one of ${values.join(', ')}`)
    return found
  }
}

function integer(max: number): Parse<number> {
  return (value, path) => {
    const fits = typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= max
    wellFormed(fits, `${path}: not an integer from 0 to ${max}`)
    return value
  }
}

function hex(sizeBytes: number): Parse<Uint8Array> {
  return (value, path) => {
    const isHex = typeof value === 'string' && value.length === sizeBytes * 2 && /^[0-9a-f]*$/.test(value)
    const bytes = isHex ? fromHex(value) : null
    wellFormed(bytes !== null, `${path}: not ${sizeBytes} bytes in lower-case hexadecimal`)
    return bytes
  }
}

function chipId(value: unknown, path: string): Uint8Array {
  const bytes = hex(HEX_SIZES.chipIds)(value, path)
  const isMasked = bytes.every(byte => byte === 0)
  wellFormed(!isMasked, `${path}: all zeros is the chip_id of every masked chip`)
  return bytes
}

function listOf<T>(parse: Parse<T>): Parse<readonly T[]> {
  return (value, path) => {
    const fits = Array.isArray(value) && value.length >= 1 && value.length <= policyListCountMax
    wellFormed(fits, `${path}: not a list of 1 to ${policyListCountMax}`)
    wellFormed(new Set(value).size === value.length, `${path}: an entry stands in it twice`)
    return value.map((item, at) => parse(item, `${path}[${at}]`))
  }
}

function bits<Name extends string>(
  names: readonly Name[],
): Parse<Readonly<Record<Name, BitRule>> & { readonly unknown: UnknownRule }> {
  return (value, path) => {
    const rules = record(value, path, [...names, 'unknown'])
    const parsed = names.map(name => [name, oneOf(bitRules)(rules[name], `${path}.${name}`)] as const)
    const unknown = oneOf(unknownRules)(rules.unknown, `${path}.unknown`)
    return { ...(Object.fromEntries(parsed) as Record<Name, BitRule>), unknown }
  }
}

function tcbMinimums(value: unknown, path: string): TcbMinimums {
  const minimums = record(value, path, PRODUCTS)
  const ofProduct = (product: Product) => {
    const components = tcbComponentsOf(product)
    const parse = (given: unknown, at: string) => {
      const minimum = record(given, at, components)
      return Object.fromEntries(
        components.map(component => [component, orAny(integer(255))(minimum[component], `${at}.${component}`)]),
      )
    }
    return [product, orAny(parse)(minimums[product], `${path}.${product}`)] as const
  }
  return Object.fromEntries(PRODUCTS.map(ofProduct)) as TcbMinimums
}

function firmware(value: unknown, path: string): FirmwareVersion {
  const version = record(value, path, ['major', 'minor', 'build'])
  const part = (name: string) => integer(255)(version[name], `${path}.${name}`)
  return { major: part('major'), minor: part('minor'), build: part('build') }
}
