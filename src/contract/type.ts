// Makes JSON Schemas with the static types, the names and the very objects of TypeBox, of which only types are
// imported: the programs that relying parties trust contain this file instead of the library. The host gives these
// schemas to TypeBox itself and to Elysia, which know them by TypeBox's symbols. Pure.

import type { JsonTypeBuilder, SchemaOptions, TProperties, TSchema } from '@sinclair/typebox'

export type {
  ObjectOptions,
  SchemaOptions,
  Static,
  TLiteral,
  TNull,
  TObject,
  TProperties,
  TSchema,
} from '@sinclair/typebox'

/** TypeBox finds out by this symbol what a schema is. */
export const KIND = Symbol.for('TypeBox.Kind')
const OPTIONAL = Symbol.for('TypeBox.Optional')
/** A record whose keys are any text. */
const anyKey = '^(.*)$'

type Plain = Record<PropertyKey, unknown>
type Options = SchemaOptions | undefined

/** The kinds that schemas of this repository use. */
export const Type = {
  Array: (items: TSchema, options: Options) => make('Array', { type: 'array', items }, options),
  Boolean: (options: Options) => make('Boolean', { type: 'boolean' }, options),
  Integer: (options: Options) => make('Integer', { type: 'integer' }, options),
  Literal: (value: string | number | boolean, options: Options) =>
    make('Literal', { const: value, type: typeof value }, options),
  Null: (options: Options) => make('Null', { type: 'null' }, options),
  Number: (options: Options) => make('Number', { type: 'number' }, options),
  Object: (properties: TProperties, options: Options) => {
    const required = Object.keys(properties).filter(key => properties[key]?.[OPTIONAL as never] !== 'Optional')
    return make('Object', { type: 'object', ...(required.length > 0 ? { required } : {}), properties }, options)
  },
  Optional: (schema: TSchema) => ({ ...schema, [OPTIONAL]: 'Optional' }),
  Partial: ({ required: _, properties, ...rest }: TSchema & { readonly properties: TProperties }) => ({
    ...rest,
    properties: Object.fromEntries(
      Object.entries(properties).map(([key, property]) => [key, { ...property, [OPTIONAL]: 'Optional' }]),
    ),
  }),
  /** `key`: a string, perhaps with a pattern. */
  Record: (key: TSchema, schema: TSchema, options: Options) =>
    make('Record', { type: 'object', patternProperties: { [key.pattern ?? anyKey]: schema } }, options),
  String: (options: Options) => make('String', { type: 'string' }, options),
  Tuple: (items: readonly TSchema[], options: Options) =>
    make(
      'Tuple',
      { type: 'array', items, additionalItems: false, minItems: items.length, maxItems: items.length },
      options,
    ),
  /** One variant or more. */
  Union: (anyOf: readonly TSchema[], options: Options) =>
    anyOf.length === 1 ? { ...options, ...anyOf[0] } : make('Union', { anyOf }, options),
  Unknown: (options: Options) => make('Unknown', {}, options),
  /** A schema whose static type is given as the type argument. */
  Unsafe: (schema: TSchema) => ({ ...schema }),
} as unknown as Builder

/** TypeBox's own signatures. */
type Builder = Pick<
  JsonTypeBuilder,
  | 'Array'
  | 'Boolean'
  | 'Integer'
  | 'Literal'
  | 'Null'
  | 'Number'
  | 'Object'
  | 'Optional'
  | 'Partial'
  | 'Record'
  | 'String'
  | 'Tuple'
  | 'Union'
  | 'Unknown'
  | 'Unsafe'
>

function make(kind: string, schema: Plain, options: Options): Plain {
  return { ...options, [KIND]: kind, ...schema }
}
