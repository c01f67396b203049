// Responses that later requests of the same key build on: their items, kept in memory for minutes. Effects: through its
// dependencies.

import type { Clock } from '../../base/clock.ts'
import { type KeptLimits, KeptTexts } from '../../base/work/kept-texts.ts'
import { createSharedTurns, type Turns } from '../../base/work/turns.ts'
import { keptResponsesDefault } from '../../contract/vm/workload.ts'
import {
  type EarlierIds,
  keptCharsMax,
  noSuchResponse,
  placeOfItem,
  responseIn,
} from '../dialects/responses/earlier.ts'
import { isObject, type JsonObject, parseJsonText } from '../json-text.ts'
import type { Earlier, KeptItems } from '../openai/dialect.ts'
import { bodyLimits } from '../openai/request.ts'

/** `request`: the id of the request that asks; for a memory that is in another process. */
export type ResponseMemory = {
  /** Whether anything is kept. */
  readonly isOn: boolean
  readonly find: (
    id: string,
    by: { readonly keyDigest: string; readonly request: string },
  ) => string | null | Promise<string | null>
  readonly keep: (
    id: string,
    kept: {
      readonly organizationId: string
      readonly keyDigest: string
      readonly request: string
      readonly text: string
    },
  ) => void
}

export function createResponseMemory(
  clock: Pick<Clock, 'monotonicMs'>,
  limits: KeptLimits = keptResponsesDefault,
): ResponseMemory {
  const kept = new KeptTexts({ clock, limits })
  return {
    isOn: kept.retentionMs > 0,
    find: (id, { keyDigest }) => kept.findAndRenew(id, keyDigest),
    keep: (id, { organizationId, keyDigest, text }) => kept.keep(id, { organizationId, keyDigest, text }),
  }
}

/** The part of its ids that a response and its items have in common. */
export function responseIdOf(requestId: string): string {
  return requestId.replaceAll('-', '')
}

/** Characters of all responses that one request builds on. */
const earlierCharsMax = 4_194_304
/** Responses that one request builds on. */
const earlierCountMax = 1_024

/** Kept of one response. `input`: null where that was too much. */
type Kept = {
  readonly previous: string | null
  readonly input: readonly JsonObject[] | null
  readonly output: readonly JsonObject[]
}

/** The text to keep; null for a response that is too long. */
export function keptText({ previous, inputText, output }: KeptItems): string | null {
  const outputText = JSON.stringify(output)
  if (outputText.length > keptCharsMax) return null
  const isWhole = inputText !== null && inputText.length + outputText.length <= keptCharsMax
  return `{"previous":${JSON.stringify(previous)},"input":${isWhole ? inputText : null},"output":${outputText}}`
}

type EarlierDeps = {
  readonly memory: ResponseMemory
  readonly by: { readonly keyDigest: string; readonly request: string }
}

const inTurns = createSharedTurns()

/** Everything that a request builds on, but for items that are not there. Fault not_found: no such response. */
export async function earlierOf({ memory, by }: EarlierDeps, ids: EarlierIds): Promise<Earlier> {
  const reader = new Reader(id => memory.find(id, by))
  const items: JsonObject[][] = []
  for (let id = ids.previous; id !== null; ) {
    const response = responseIn(id)
    const kept = response === null ? null : await reader.read(response)
    if (kept === null || kept.input === null) throw noSuchResponse()
    items.push([...kept.input, ...kept.output])
    id = kept.previous
  }
  const named = new Map<string, JsonObject>()
  for (const id of ids.named) {
    const place = placeOfItem(id)
    const kept = place === null ? null : await reader.read(place.response)
    const item = place === null ? undefined : kept?.output[place.at]
    if (item?.id === id) named.set(id, item)
  }
  return { items: items.toReversed().flat(), named }
}

/** Reads each response once, within bounds for all of them, each in a turn of its own. */
class Reader {
  readonly #find: (id: string) => string | null | Promise<string | null>
  readonly #read = new Map<string, Kept | null>()
  #chars = 0

  constructor(find: (id: string) => string | null | Promise<string | null>) {
    this.#find = find
  }

  async read(id: string): Promise<Kept | null> {
    const known = this.#read.get(id)
    if (known !== undefined) return known
    if (this.#read.size >= earlierCountMax) return null
    const text = await this.#find(id)
    this.#chars += text?.length ?? 0
    const kept = text === null || this.#chars > earlierCharsMax ? null : await inTurns(parsed(text))
    this.#read.set(id, kept)
    return kept
  }
}

function* parsed(text: string): Turns<Kept | null> {
  yield
  const value = parseJsonText(text, bodyLimits)
  if (!isObject(value)) return null
  const { previous, input, output } = value
  return {
    previous: typeof previous === 'string' ? previous : null,
    input: Array.isArray(input) ? input : null,
    output: Array.isArray(output) ? output : [],
  }
}
