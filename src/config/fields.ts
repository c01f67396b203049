// Kinds of configuration fields, each with what it allows in words. Pure.

import { type TProperties, Type } from '@sinclair/typebox'

/** Allowed addresses to listen on, in words. The pattern is coarse; the cross-checks read the address (listen.ts). */
const listenAllowed = 'ADDRESS:PORT with an IPv4 address or an IPv6 address in brackets, port 0 to 65535'

const closed = { additionalProperties: false } as const
const addressPort = '[0-9a-fA-F.:\\[\\]]+:[0-9]{1,5}'
export const AddressPort = (fallback: string, description: string) =>
  Type.String({ default: fallback, pattern: `^${addressPort}$`, allowed: listenAllowed, description })
export const AddressPortOrOff = (fallback: string, description: string) =>
  Type.String({
    default: fallback,
    pattern: `^$|^${addressPort}$`,
    allowed: `"" or ${listenAllowed}`,
    description: `${description} "" turns it off.`,
  })
export const OneOf = <const Choice extends string>(
  choices: readonly Choice[],
  options: { readonly default: Choice; readonly description: string },
) =>
  Type.Union(
    choices.map(choice => Type.Literal(choice)),
    options,
  )
export const Count = (
  [fallback, minimum, maximum]: readonly [fallback: number, minimum: number, maximum: number],
  description: string,
) => Type.Integer({ default: fallback, minimum, maximum, description })
/** A table of an array of tables. */
export const Entry = <Fields extends TProperties>(fields: Fields) => Type.Object(fields, closed)
/** A table of the file. */
export const Section = <Fields extends TProperties>(fields: Fields) => Type.Object(fields, { ...closed, default: {} })
export const Path = (fallback: string, description: string) =>
  Type.String({ default: fallback, pattern: '^/', maxLength: 4096, allowed: 'an absolute path', description })
export const PathOrNone = (description: string) =>
  Type.String({ default: '', pattern: '^$|^/', maxLength: 4096, allowed: '"" or an absolute path', description })
export const Usd = (fallback: string, description: string) =>
  Type.String({
    default: fallback,
    pattern: '^(0|[1-9][0-9]{0,11})(\\.[0-9]{1,6})?$',
    allowed: 'US dollars as text, such as "12.50"; at most six decimals',
    description,
  })
export const UsdOrNone = (description: string) =>
  Type.String({
    default: '',
    pattern: '^$|^(0|[1-9][0-9]{0,11})(\\.[0-9]{1,6})?$',
    allowed: '"" or US dollars as text, such as "12.50"; at most six decimals',
    description,
  })
export const UserName = (description: string) =>
  Type.String({
    default: 'strongroom-vm',
    pattern: '^[a-z_][a-z0-9_-]{0,30}$',
    allowed: 'the name of a user of this host: 1 to 31 lowercase letters, digits, hyphens and underscores',
    description,
  })
/** In words; the cross-checks read it (checks/ipv6.ts). */
export const poolV6Allowed = '"" or an IPv6 network ADDRESS/N, N from 48 to 112'
export const ipv4Pattern = '^(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?:\\.(?!$|/)|(?=$|/))){4}'

export const Name = (description: string) =>
  Type.String({
    pattern: '^[a-z0-9][a-z0-9-]{0,62}$',
    allowed: '1 to 63 lowercase letters, digits and hyphens',
    description,
  })
