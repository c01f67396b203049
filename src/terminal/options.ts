// Values of options: numbers, hexadecimal, times. Pure. Parsers throw commander's InvalidArgumentError.

import { InvalidArgumentError } from 'commander'
import { parseUserBudget, type UserBudget, userBudgetExample } from '../contract/admin/user-budget.ts'
import { InputFault } from './exit.ts'
import { pastedHex } from './hex.ts'

/** The value of an option that this use of a command cannot do without. */
export function required<T>(param: string, value: T | undefined): T {
  if (value !== undefined) return value
  throw new InputFault(`required option --${param} is missing`, { param, remedy: `add --${param}` })
}

/** Exactly this many bytes in hexadecimal, of either case. */
export function hexOption(sizeBytes: number): (text: string) => Uint8Array {
  return text => {
    const bytes = pastedHex(text)
    if (bytes !== null && bytes.length === sizeBytes) return bytes
    throw new InvalidArgumentError(
      `It must be ${sizeBytes} bytes in hexadecimal, which is ${sizeBytes * 2} characters.`,
    )
  }
}

/** From 1 byte to this many in hexadecimal, of either case. `remedy`: a sentence for those who gave something else. */
export function hexUpToOption(bytesMax: number, remedy?: string): (text: string) => Uint8Array {
  return text => {
    const bytes = pastedHex(text)
    if (bytes !== null && bytes.length >= 1 && bytes.length <= bytesMax) return bytes
    const wanted = `It must be 1 to ${bytesMax} bytes in hexadecimal, two characters for each.`
    throw new InvalidArgumentError(remedy === undefined ? wanted : `${wanted} ${remedy}`)
  }
}

/** Decimal, or hexadecimal after 0x, of at most `bits` bits. */
export function unsignedOption(bits: number): (text: string) => bigint {
  return text => {
    const value = /^(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})$/.test(text) ? BigInt(text) : -1n
    if (value >= 0n && value >> BigInt(bits) === 0n) return value
    throw new InvalidArgumentError(`It must be a number of at most ${bits} bits, decimal or hexadecimal after 0x.`)
  }
}

/** A whole number from `min` to `max`. */
export function countOption(min: number, max: number): (text: string) => number {
  return text => {
    const value = /^[0-9]{1,15}$/.test(text) ? Number(text) : Number.NaN
    if (value >= min && value <= max) return value
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`)
  }
}

/** Accepts the word, or whatever `parse` accepts. */
export function orWord<T, const Word extends string>(
  word: Word,
  parse: (text: string) => T,
): (text: string) => T | Word {
  return text => (text === word ? word : parse(text))
}

/** Null for the word. */
export function nullFor<T>(word: string, value: T): T | null {
  return value === word ? null : value
}

/** Largest budget, in tokens. */
export const budgetTokensMax = 1_000_000_000_000

/** Names with commas in between; nothing at all is no name. */
export function namesOption(text: string): string[] {
  const names = text.split(',').map(name => name.trim())
  if (text.trim() === '') return []
  if (names.every(name => name !== '')) return [...new Set(names)]
  throw new InvalidArgumentError('It must be names with commas in between.')
}

/** `name=model`, one after the other. */
export function aliasOption(text: string, before: { name: string; model: string }[] = []) {
  const [, name, model] = /^([^=]+)=(.+)$/.exec(text) ?? []
  if (name !== undefined && model !== undefined) return [...before, { name, model }]
  throw new InvalidArgumentError('It must be a name and a model, like gpt-4o=llama-70b.')
}

/** A budget of each end user, as `parseUserBudget` has it. */
export function userBudgetOption(text: string): UserBudget {
  const budget = parseUserBudget(text)
  if (budget !== null) return budget
  throw new InvalidArgumentError(`It must be dollars and a period, like 5/month or ${userBudgetExample}.`)
}

/** A number of bytes from 1 to `max`: a whole number, or one with KiB, MiB, GiB or TiB behind it. */
export function bytesOption(max: number): (text: string) => number {
  return text => {
    const [, digits, unit = 'B'] = /^([0-9]{1,16})(B|KiB|MiB|GiB|TiB)?$/.exec(text) ?? []
    const value = Number(digits) * 1024 ** ['B', 'KiB', 'MiB', 'GiB', 'TiB'].indexOf(unit)
    if (value >= 1 && value <= max) return value
    throw new InvalidArgumentError(`It must be a number of bytes from 1 to ${max}, like 1073741824 or 1GiB.`)
  }
}

/** A time in UTC, or a day, which begins at midnight UTC. Milliseconds since the epoch. */
export function timeOption(text: string): number {
  const iso = /^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00Z` : text
  const ms = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,3})?Z$/.test(iso) ? Date.parse(iso) : Number.NaN
  // The 30th of February is read as the 2nd of March.
  if (Number.isFinite(ms) && new Date(ms).toISOString().startsWith(iso.slice(0, 19))) return ms
  throw new InvalidArgumentError('It must be a time like 2025-06-01T00:00:00Z, or a day like 2025-06-01.')
}

/** Parses https://HOST:PORT, with no credentials and nothing after it; null for other texts. */
export function plainUrl(text: string): URL | null {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || url.protocol !== 'https:' || url.username !== '' || url.password !== '') return null
  return url.pathname === '/' && url.search === '' && url.hash === '' ? url : null
}

export function urlOption(text: string): URL {
  const url = plainUrl(text)
  if (url !== null) return url
  throw new InvalidArgumentError('It must be https://HOST:PORT, with nothing after it.')
}
