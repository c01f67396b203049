// Kinds of values in a policy file: each with its JSON Schema and its parser. Pure.

import { fromHex } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'

type JsonSchema = { readonly [keyword: string]: unknown }

/**
 * A schema and its parser, which accepts what `schema` accepts. `parse` throws Malformed that names the path, as in
 * `policy.guestPolicy.debug: …`.
 */
export type Kind<T> = { readonly schema: JsonSchema; readonly parse: (value: unknown, path: string) => T }

export type Valued<K> = K extends Kind<infer T> ? T : never

/** A field of an object, required unless it has `whenMissing`. */
export type Field<T> = Kind<T> & {
  /** Value, in JSON form, for files written before the field existed. */
  readonly whenMissing?: unknown
  /** Advice in the error message for a missing field. */
  readonly remedy?: string
}

export type BitRule = 'required' | 'forbidden' | 'any'
/** Rule for bits that have no name yet. */
export type UnknownRule = 'forbidden' | 'any'
export type BitRules<Name extends string> = Readonly<Record<Name, BitRule>> & { readonly unknown: UnknownRule }

/** Lists must have at least one entry and at most this many. */
export const policyListCountMax = 1024

/**
 * Returns a kind for objects. Parsing throws Malformed for an unknown field, and for a missing field without
 * `whenMissing`.
 */
export function object<Fields extends Readonly<Record<string, Field<unknown>>>>(
  fields: Fields,
): Kind<{ readonly [Name in keyof Fields]: Valued<Fields[Name]> }> {
  const entries = Object.entries<Field<unknown>>(fields)
  const properties = entries.map(([name, { schema, whenMissing }]) => {
    return [name, whenMissing === undefined ? schema : { ...schema, default: whenMissing }] as const
  })
  const required = entries.filter(([, { whenMissing }]) => whenMissing === undefined)
  return {
    schema: {
      type: 'object',
      properties: Object.fromEntries(properties),
      required: required.map(([name]) => name),
      additionalProperties: false,
    },
    parse: (value, path) => {
      wellFormed(isRecord(value), `${path}: not an object`)
      for (const [name, { remedy = 'write what you accept, or "any" to skip this check' }] of required)
        wellFormed(Object.hasOwn(value, name), `${path}.${name}: it is missing; ${remedy}`)
      for (const name of Object.keys(value))
        wellFormed(Object.hasOwn(fields, name), `${path}.${name.slice(0, 64)}: unknown field`)
      const parsed = entries.map(([name, { parse, whenMissing }]) => {
        return [name, parse(Object.hasOwn(value, name) ? value[name] : whenMissing, `${path}.${name}`)] as const
      })
      return Object.fromEntries(parsed) as { readonly [Name in keyof Fields]: Valued<Fields[Name]> }
    },
  }
}

export function orAny<T>({ schema, parse }: Kind<T>): Kind<T | 'any'> {
  return {
    schema: { anyOf: [{ const: 'any' }, schema] },
    parse: (value, path) => (value === 'any' ? 'any' : parse(value, path)),
  }
}

export function oneOf<const T extends string>(values: readonly T[]): Kind<T> {
  return {
    schema: { enum: values },
    parse: (value, path) => {
      const found = values.find(allowed => allowed === value)
      wellFormed(found !== undefined, `${path}: not one of ${values.join(', ')}`)
      return found
    },
  }
}

export function integer(max: number, min = 0): Kind<number> {
  return {
    schema: { type: 'integer', minimum: min, maximum: max },
    parse: (value, path) => {
      const fits = typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max
      wellFormed(fits, `${path}: not an integer from ${min} to ${max}`)
      return value
    },
  }
}

/** Returns a kind for text that `pattern` matches completely. `form` describes it in the error message. */
export function text(pattern: string, form: string): Kind<string> {
  const whole = new RegExp(`^${pattern}$`, 'u')
  return {
    schema: { type: 'string', pattern: `^${pattern}$` },
    parse: (value, path) => {
      wellFormed(typeof value === 'string' && whole.test(value), `${path}: not ${form}`)
      return value
    },
  }
}

/**
 * Returns a kind for 64 bits as `0x…` in lower-case hexadecimal without leading zeros, because a JSON number would lose
 * bits.
 */
export function mask64(): Kind<bigint> {
  const { schema, parse } = text('0x(0|[1-9a-f][0-9a-f]{0,15})', 'a number of 64 bits like 0xb')
  return { schema, parse: (value, path) => BigInt(parse(value, path)) }
}

/** Returns a kind for bytes as lower-case hexadecimal. */
export function hex(sizeBytes: number): Kind<Uint8Array> {
  return {
    schema: { type: 'string', pattern: `^[0-9a-f]{${sizeBytes * 2}}$` },
    parse: (value, path) => {
      const isHex = typeof value === 'string' && value.length === sizeBytes * 2 && /^[0-9a-f]*$/.test(value)
      const bytes = isHex ? fromHex(value) : null
      wellFormed(bytes !== null, `${path}: not ${sizeBytes} bytes in lower-case hexadecimal`)
      return bytes
    },
  }
}

/** Returns a kind for a chip_id. It rejects all zeros, the chip_id of every masked chip. */
export function chipId(sizeBytes: number): Kind<Uint8Array> {
  return {
    schema: { type: 'string', pattern: `^(?!0+$)[0-9a-f]{${sizeBytes * 2}}$` },
    parse: (value, path) => {
      const bytes = hex(sizeBytes).parse(value, path)
      const isMasked = bytes.every(byte => byte === 0)
      wellFormed(!isMasked, `${path}: all zeros is the chip_id of every masked chip`)
      return bytes
    },
  }
}

/** Returns a kind for bits that must be set, and bits that must be clear, of 64. */
export function masks(): Kind<{ readonly required: bigint; readonly forbidden: bigint }> {
  return object({ required: mask64(), forbidden: mask64() })
}

export function listOf<T>({ schema, parse }: Kind<T>): Kind<readonly T[]> {
  return {
    schema: { type: 'array', items: schema, minItems: 1, maxItems: policyListCountMax, uniqueItems: true },
    parse: (value, path) => {
      const fits = Array.isArray(value) && value.length >= 1 && value.length <= policyListCountMax
      wellFormed(fits, `${path}: not a list of 1 to ${policyListCountMax}`)
      const entries = value.map((entry, at) => parse(entry, `${path}[${at}]`))
      wellFormed(new Set(value.map(canonical)).size === value.length, `${path}: an entry stands in it twice`)
      return entries
    },
  }
}

/** Returns equal text for equal parsed entries, whatever the order of an object's fields. */
function canonical(entry: unknown): string {
  return JSON.stringify(isRecord(entry) ? Object.entries(entry).toSorted(([a], [b]) => (a < b ? -1 : 1)) : entry)
}

/** Returns a kind for one value, or a list of accepted values. */
export function oneOrMore<T>(kind: Kind<T>): Kind<T | readonly T[]> {
  const list = listOf(kind)
  return {
    schema: { anyOf: [kind.schema, list.schema] },
    parse: (value, path) => (Array.isArray(value) ? list.parse(value, path) : kind.parse(value, path)),
  }
}

/**
 * A rule for each bit of `table`, and one for bits without a name. `whenMissing`: bits that were named after policy
 * files existed, with the rule that applies to older files.
 */
export function bits<Name extends string>(
  table: Readonly<Record<Name, number>>,
  whenMissing: Partial<Readonly<Record<Name, BitRule>>> = {},
): Kind<BitRules<Name>> {
  const rule = oneOf(['required', 'forbidden', 'any'])
  const names = Object.keys(table) as Name[]
  const rules = names.map(name => {
    const missing = whenMissing[name]
    return [name, missing === undefined ? rule : { ...rule, whenMissing: missing }]
  })
  return object({ ...Object.fromEntries(rules), unknown: oneOf(['forbidden', 'any']) }) as Kind<BitRules<Name>>
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
