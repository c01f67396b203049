// Input files of commands, whole and bounded: bytes, text or JSON. Effects: reads files. Failures are InputFaults.

import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs'
import { withoutComments } from '../attest/encoding/json.ts'
import { Malformed } from '../attest/malformed.ts'
import { fromUtf8, utf8 } from '../base/bytes.ts'
import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'
import { InputFault } from './exit.ts'

export type InputFile = {
  readonly path: string
  /** The option that named it, without dashes, or the name of the argument. */
  readonly param: string
  readonly bytesMax: number
}

export const KIB = 1024
export const MIB = 1024 * KIB

/**
 * The whole file, which may be a pipe; `-` is standard input. A larger one is refused, before it is read where its size
 * is known.
 */
export function readInput(input: InputFile): Uint8Array {
  const { path, bytesMax } = input
  const tooLarge = (reason: string) => inputFault(input, reason, wrongFileRemedy)
  let fd: number
  try {
    fd = openSync(path === '-' ? '/dev/stdin' : path, 'r')
  } catch (error) {
    throw unreadable(input, error)
  }
  try {
    const { size } = fstatSync(fd)
    if (size > bytesMax) throw tooLarge(`${size} bytes, at most ${bytesMax} are allowed`)
    const bytes = readUpTo(fd, bytesMax + 1, size)
    if (bytes.length > bytesMax) throw tooLarge(`more than ${bytesMax} bytes`)
    return bytes
  } catch (error) {
    throw error instanceof Fault ? error : unreadable(input, error)
  } finally {
    closeSync(fd)
  }
}

/** False also for a path that the system cannot follow, such as a loop of symbolic links. */
export function isDirectory(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
  } catch {
    return false
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
    throw inputFault(input, 'not UTF-8', wrongFileRemedy)
  }
}

/**
 * Strict JSON (base/json.ts), because trust depends on the content of every file that is read this way. `hasComments`:
 * lines that begin with // are left out.
 */
export function readJsonInput(input: InputFile, { hasComments = false } = {}): unknown {
  const read = readTextInput(input)
  const remedy = 'correct the JSON in the file'
  let text = read
  try {
    if (hasComments) text = withoutComments(read)
    // The strict reader does not say where the mistake is.
    JSON.parse(text)
  } catch (error) {
    throw inputFault(input, `not JSON: ${messageOf(error)}`, remedy)
  }
  try {
    return parseJson(utf8(text), { depthMax: 64, what: 'the file' })
  } catch (error) {
    throw inputFault(input, messageOf(error), remedy)
  }
}

/** Turns Malformed (bad input) into an InputFault whose message begins with `source`: an option and its file. */
export async function readingInput<T>(source: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof Malformed)) throw error
    const message = source === '' ? error.message : `${source}: ${error.message}`
    throw new InputFault(message, { remedy: 'correct the input, or name another file', cause: error })
  }
}

/** For a file that the system did not let us open or read. */
export function unreadable(input: Pick<InputFile, 'path' | 'param'>, error: unknown): InputFault {
  const known = SYSTEM_ERRORS[systemErrorCode(error) ?? '']
  return inputFault(input, known?.reason ?? messageOf(error), known?.remedy ?? 'check the path')
}

export function inputFault(input: Pick<InputFile, 'path' | 'param'>, reason: string, remedy: string): InputFault {
  const { path, param } = input
  // An argument is its path alone, an option has its name before it.
  const source = argumentNames.includes(param) ? path : `--${param} ${path}`
  return new InputFault(`${source}: ${reason}`, { param, remedy })
}

const argumentNames = ['file', 'image']
export const wrongFileRemedy = 'check that this is the right file'

const missing = { reason: 'there is no such file', remedy: 'check the path' }
const SYSTEM_ERRORS: { readonly [code: string]: { readonly reason: string; readonly remedy: string } } = {
  ENOENT: missing,
  ENOTDIR: missing,
  EACCES: { reason: 'permission denied', remedy: 'run the command as a user who may read the file' },
  EISDIR: { reason: 'it is a directory', remedy: 'name a file' },
}

/** Reads to the end, or `bytesMax` bytes. `expectedBytes`: the size, 0 if it is not known. */
export function readUpTo(fd: number, bytesMax: number, expectedBytes: number): Uint8Array {
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
