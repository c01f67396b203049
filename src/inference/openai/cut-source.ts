// A checked source whose long values are cut out, so that a thread that only passes them on need not hold their text. A
// mark that no client can guess stands in their places. Pure.

import { utf8 } from '../../base/bytes.ts'
import { isObject, type JsonObject, membersOf, partsOf } from '../json-text.ts'
import { type LongTexts, markIndexChars } from './long-texts.ts'
import type { RequestSource } from './request.ts'

/** Data alone, because it goes from one thread to another. */
export type CutSource = {
  /** `text` has marks for the long values; `body` has no more of them than upstream-body.ts reads. */
  readonly source: RequestSource
  readonly mark: string
  /** JSON of each long value. */
  readonly values: readonly Uint8Array<ArrayBuffer>[]
}

export type CutOptions = {
  /** Random, of hexadecimal digits. */
  readonly mark: string
  /** Base64 that was cut out of the text before; null for none. */
  readonly longTexts: LongTexts | null
  /** Whether an upstream may get the member. */
  readonly isSent: (name: string) => boolean
}

/** Longer values are cut out. */
const shortCharsMax = 1_024
/** Members that no upstream gets are shown by name: as many as a header has room for, and more. */
const unsentMax = 64
const unsentCharsMax = 256

/** Fault invalid_request if a long text stands in a field that the upstream does not get. */
export function cutSource(source: RequestSource, { mark, longTexts, isSent }: CutOptions): CutSource {
  const values: string[] = []
  const cut = (value: string) => `${mark}${(values.push(value) - 1).toString(16).padStart(markIndexChars, '0')}`
  const isLong = (value: string) => value.length > shortCharsMax || value.includes(mark)
  const texts: string[] = []
  const body: Record<string, unknown> = {}
  let unsent = 0
  for (const { name, value, text } of membersOf(source.text)) {
    if (!isSent(name)) {
      unsent += 1
      if (unsent > unsentMax) continue
      const shown = name.slice(0, unsentCharsMax)
      body[shown] = null
      texts.push(`${JSON.stringify(shown)}:null`)
    } else if (!isLong(value)) {
      body[name] = source.body[name]
      // White space before the name may be long.
      texts.push(text.length > 2 * shortCharsMax ? `${JSON.stringify(name)}:${value}` : text)
    } else {
      const tools = name === 'tools' ? source.body[name] : null
      body[name] = Array.isArray(tools) ? tools.map(nameAlone) : true
      const shown = Array.isArray(tools) ? `[${partsOf(value).map(cut).join(',')}]` : cut(value)
      texts.push(`${JSON.stringify(name)}:${shown}`)
    }
  }
  const cutValues = longTexts?.putBack(values) ?? values.map(utf8)
  const cutText = { text: `{${texts.join(',')}}`, body, sizeBytes: source.sizeBytes, changes: source.changes }
  return { source: cutText, mark, values: cutValues as Uint8Array<ArrayBuffer>[] }
}

/** The names that a header shows of a list, each within bounds. */
export function shownNames(names: readonly string[]): readonly string[] {
  return names.slice(0, unsentMax).map(name => name.slice(0, unsentCharsMax))
}

/** The field that chooses a tool. */
function nameAlone(tool: unknown): JsonObject {
  const named = isObject(tool) && isObject(tool.function) ? tool.function.name : null
  return { function: { name: named } }
}

/** Values that were cut out of a source, until an upstream has answered. */
export class CutValues {
  readonly #mark: string
  #values: readonly Uint8Array[]

  constructor({ mark, values }: Pick<CutSource, 'mark' | 'values'>) {
    this.#mark = mark
    this.#values = values
  }

  /** The upstream's request in pieces, with the values in the places of their marks. */
  putBack(text: string): Uint8Array[] {
    const [head = '', ...rest] = text.split(this.#mark)
    const pieces: Uint8Array[] = [Buffer.from(head)]
    for (const part of rest) {
      const value = this.#values[Number.parseInt(part.slice(0, markIndexChars), 16)]
      if (value !== undefined) pieces.push(value)
      pieces.push(Buffer.from(part.slice(markIndexChars)))
    }
    return pieces
  }

  /** Frees the memory, though this object may still be referenced. */
  drop(): void {
    this.#values = []
  }
}
