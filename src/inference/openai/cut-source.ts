// A checked source with its long values cut out, so that a thread that only passes them on need not hold their text.
// Each is replaced by a mark that no client can guess. Pure.

import { utf8 } from '../../base/bytes.ts'
import { isObject, type JsonObject, membersOf, partsOf } from '../json-text.ts'
import { messagesWithReasoning, reasoningMembers, reasoningName } from './engines/reasoning.ts'
import { type LongTexts, markIndexChars } from './long-texts.ts'
import type { RequestSource } from './request.ts'

/** Only data, because it moves between threads. */
export type CutSource = {
  /** `text` has marks for the long values; `body` has only those that upstream-body.ts reads. */
  readonly source: RequestSource
  readonly mark: string
  /** JSON of each long value. */
  readonly values: readonly Uint8Array<ArrayBuffer>[]
}

export type CutOptions = {
  /** Random hexadecimal digits. */
  readonly mark: string
  /** Base64 that was cut out of the text before; null if there was none. */
  readonly longTexts: LongTexts | null
  /** Reports whether an upstream may get the member. */
  readonly isSent: (name: string) => boolean
  /** Whether an engine may get the reasoning of messages in other fields. */
  readonly hasReasoning: boolean
}

/** Longer values are cut out. */
const shortCharsMax = 1_024
/** Among messages with reasoning, values longer than this are cut out. A mark has 40 characters. */
const shortInMessageMax = 128
/** Maximum text of messages that the serving thread converts for each upstream, which takes a few milliseconds. */
const splitCharsMax = 524_288
/** Members that no upstream receives are shown by name: more than a header has room for. */
const unsentMax = 64
const unsentCharsMax = 256

/**
 * Cuts the long values out of a source. Throws Fault invalid_request if a long text is in a field that the upstream
 * does not receive.
 */
export function cutSource(source: RequestSource, { mark, longTexts, isSent, hasReasoning }: CutOptions): CutSource {
  const values: string[] = []
  const cut = (value: string) => `${mark}${(values.push(value) - 1).toString(16).padStart(markIndexChars, '0')}`
  const isLong = (value: string, charsMax = shortCharsMax) => value.length > charsMax || value.includes(mark)
  const texts: string[] = []
  const body: Record<string, unknown> = {}
  let { changes } = source
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
      // Each document of a ranking may occur in its response.
      const isList = Array.isArray(tools) || (name === 'documents' && Array.isArray(source.body[name]))
      let shown: string
      if (hasReasoning && name === 'messages') {
        const split = splitMessages(value, { cut, isLong })
        if (!split.isWhole) changes = [...changes, reasoningName]
        shown = split.text
      } else shown = isList ? `[${partsOf(value).map(cut).join(',')}]` : cut(value)
      texts.push(`${JSON.stringify(name)}:${shown}`)
    }
  }
  const cutValues = longTexts?.putBack(values) ?? values.map(utf8)
  const cutText = { text: `{${texts.join(',')}}`, body, sizeBytes: source.sizeBytes, changes }
  return { source: cutText, mark, values: cutValues as Uint8Array<ArrayBuffer>[] }
}

type Cutter = { readonly cut: (value: string) => string; readonly isLong: (value: string, charsMax: number) => boolean }

/**
 * Cuts out runs of messages without reasoning as a whole, and the long values of the others. Removes the oldest
 * reasoning beyond `splitCharsMax`, which chat templates leave out anyway; `isWhole` is then false.
 */
function splitMessages(messages: string, { cut, isLong }: Cutter): { readonly text: string; isWhole: boolean } {
  const pieces: string[] = []
  let run: string[] = []
  let chars = 0
  let isWhole = true
  const cutLong = (text: string) => (isLong(text, shortInMessageMax) ? cut(text) : text)
  // The mark of a text is within its quotes.
  const shortValue = (value: string) => (value.startsWith('"') ? `"${cutLong(value.slice(1, -1))}"` : cutLong(value))
  const endRun = () => {
    const text = run.reverse().join(',')
    run = []
    if (text !== '') pieces.push(cutLong(text))
    chars += Math.min(text.length, shortInMessageMax)
  }
  for (const message of partsOf(messages).reverse()) {
    const members = reasoningMembers(message)
    chars +=
      members?.reduce((sum, { name, value }) => sum + name.length + Math.min(value.length, shortInMessageMax), 0) ?? 0
    if (members !== null && chars <= splitCharsMax) {
      endRun()
      const texts = members.map(({ name, value }) => `${JSON.stringify(name)}:${shortValue(value.trim())}`)
      pieces.push(`{${texts.join(',')}}`)
    } else if (members === null) run.push(message)
    else {
      isWhole = false
      run.push(messagesWithReasoning(`[${message}]`, 'openai').text.slice(1, -1))
    }
  }
  endRun()
  return { text: `[${pieces.reverse().join(',')}]`, isWhole }
}

/** Returns the names of a list that a header shows, each within bounds. */
export function shownNames(names: readonly string[]): readonly string[] {
  return names.slice(0, unsentMax).map(name => name.slice(0, unsentCharsMax))
}

/** Returns only the field that chooses a tool. */
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

  /** Returns the upstream's request in pieces, with the values in place of their marks. */
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

  /** Frees the memory, even if this object is still referenced. */
  drop(): void {
    this.#values = []
  }
}
