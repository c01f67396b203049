// What a command is given: files of bounded size, numbers, hexadecimal, times. Effects: reads files. Every Fault is invalid_request.

import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { InvalidArgumentError } from 'commander'
import { Malformed } from '../attest/malformed.ts'
import { fromHex, fromUtf8 } from '../base/bytes.ts'
import { Fault, messageOf } from '../base/fault.ts'

export type InputFile = {
  readonly path: string
  /** The option that named it, without dashes, or the argument. */
  readonly param: string
  readonly bytesMax: number
}

/** How a message names a file: an argument needs no name of its own. */
function sourceOf({ path, param }: Pick<InputFile, 'path' | 'param'>): string {
  return param === 'file' ? path : `--${param} ${path}`
}

export const KIB = 1024
export const MIB = 1024 * KIB

/** The whole file. A pipe will do; what is larger than the limit is refused, before it is read where its size can be known. */
export function readInput(input: InputFile): Uint8Array {
  const { path, param, bytesMax } = input
  const refuse = (reason: string) => new Fault('invalid_request', `${sourceOf(input)}: ${reason}`, { param })
  let fd: number
  try {
    fd = openSync(path, 'r')
  } catch (error) {
    throw refuse(reasonOf(error))
  }
  try {
    const { size } = fstatSync(fd)
    if (size > bytesMax) throw refuse(`${size} bytes, at most ${bytesMax}`)
    const bytes = readUpTo(fd, bytesMax + 1, size)
    if (bytes.length > bytesMax) throw refuse(`more than ${bytesMax} bytes`)
    return bytes
  } catch (error) {
    throw error instanceof Fault ? error : refuse(reasonOf(error))
  } finally {
    closeSync(fd)
  }
}

export function readOptionalInput(input: Omit<InputFile, 'path'> & { path: string | undefined }) {
  return input.path === undefined ? undefined : readInput({ ...input, path: input.path })
}

export function readTextInput(input: InputFile): string {
  const bytes = readInput(input)
  try {
    return fromUtf8(bytes)
  } catch {
    throw new Fault('invalid_request', `${sourceOf(input)}: not UTF-8`, { param: input.param })
  }
}

export function readJsonInput(input: InputFile): unknown {
  const text = readTextInput(input)
  try {
    return JSON.parse(text)
  } catch (error) {
    const message = `${sourceOf(input)}: not JSON: ${messageOf(error)}`
    throw new Fault('invalid_request', message, { param: input.param })
  }
}

/** What `work` cannot make sense of is bad input, and no failure of ours. `source` begins the message: an option and its file. */
export async function readingInput<T>(source: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof Malformed)) throw error
    throw new Fault('invalid_request', source === '' ? error.message : `${source}: ${error.message}`, { cause: error })
  }
}

/** For commander: exactly this many bytes in hexadecimal, of either case. */
export function hexOption(sizeBytes: number): (text: string) => Uint8Array {
  return text => {
    const bytes = fromHex(text)
    if (bytes !== null && bytes.length === sizeBytes) return bytes
    throw new InvalidArgumentError(
      `It must be ${sizeBytes} bytes in hexadecimal, which is ${sizeBytes * 2} characters.`,
    )
  }
}

/** For commander: decimal, or hexadecimal after 0x, of at most `bits` bits. */
export function unsignedOption(bits: number): (text: string) => bigint {
  return text => {
    const value = /^(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})$/.test(text) ? BigInt(text) : -1n
    if (value >= 0n && value >> BigInt(bits) === 0n) return value
    throw new InvalidArgumentError(`It must be a number of at most ${bits} bits, decimal or hexadecimal after 0x.`)
  }
}

/** For commander: a count from `min` to `max`. */
export function countOption(min: number, max: number): (text: string) => number {
  return text => {
    const value = /^[0-9]{1,15}$/.test(text) ? Number(text) : Number.NaN
    if (value >= min && value <= max) return value
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`)
  }
}

/** For commander: a time in UTC, or a day, which begins at midnight UTC. Milliseconds since the epoch. */
export function timeOption(text: string): number {
  const iso = /^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00Z` : text
  const ms = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,3})?Z$/.test(iso) ? Date.parse(iso) : Number.NaN
  // The 30th of February is read as the 2nd of March.
  if (Number.isFinite(ms) && new Date(ms).toISOString().startsWith(iso.slice(0, 19))) return ms
  throw new InvalidArgumentError('It must be a time like 2025-06-01T00:00:00Z, or a day like 2025-06-01.')
}

function readUpTo(fd: number, bytesMax: number, expectedBytes: number): Uint8Array {
  let buffer = new Uint8Array(Math.min(bytesMax, Math.max(expectedBytes + 1, 64 * KIB)))
  let length = 0
  while (length < bytesMax) {
    if (length === buffer.length) {
      const larger = new Uint8Array(Math.min(bytesMax, buffer.length * 2))
      larger.set(buffer)
      buffer = larger
    }
    const count = readSync(fd, buffer, length, buffer.length - length, null)
    if (count === 0) break
    length += count
  }
  return buffer.slice(0, length)
}

function reasonOf(error: unknown): string {
  return REASONS[String(Reflect.get(Object(error), 'code'))] ?? messageOf(error)
}

const REASONS: { readonly [code: string]: string } = {
  ENOENT: 'there is no such file',
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
  ENOTDIR: 'there is no such file',
}
