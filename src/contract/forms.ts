// Parts that the schemas of several wires share. Pure.

import { type ObjectOptions, type SchemaOptions, type TObject, type TProperties, type TSchema, Type } from './type.ts'

/** An object of exactly these fields: an unknown one is refused. */
export function Closed<T extends TProperties>(fields: T, options: ObjectOptions = {}): TObject<T> {
  return Type.Object(fields, { additionalProperties: false, ...options })
}

/** An object of these fields and others, which a later release may have written: readers leave them alone. */
export function Open<T extends TProperties>(fields: T, options: ObjectOptions = {}): TObject<T> {
  return Type.Object(fields, options)
}

export function OrNull<T extends TSchema>(schema: T, options: SchemaOptions = {}) {
  return Type.Union([schema, Type.Null()], options)
}

/** Digests in lowercase hexadecimal. */
export const Sha256 = Type.String({ pattern: '^[0-9a-f]{64}$' })
export const Sha384 = Type.String({ pattern: '^[0-9a-f]{96}$' })

/** Without padding. */
export function Base64Url(bytesMin: number, bytesMax: number, options: SchemaOptions = {}) {
  return Type.String({
    pattern: '^[A-Za-z0-9_-]+$',
    minLength: Math.ceil((bytesMin * 4) / 3),
    maxLength: Math.ceil((bytesMax * 4) / 3),
    ...options,
  })
}
