// Responses that later requests of the same key build on: their items, kept in memory for minutes. Effects: through its
// dependencies.
//
// The memory contains only the SHA-256 of a response's id, because the id is a secret of the client that got the
// response.

import type { Clock } from '../../base/clock.ts'
import { stringEnd } from '../../base/json.ts'
import { measureBytes, TextCache, type TextCacheLimits } from '../../base/work/text-cache.ts'
import { createCooperativeQueue, type Turns } from '../../base/work/turns.ts'
import { keptResponsesDefault } from '../../contract/vm/kept-defaults.ts'
import {
  type EarlierIds,
  fieldOf,
  keptCharsMax,
  noSuchResponse,
  placeOfItem,
  responseIn,
  tooMuchEarlier,
} from '../dialects/responses/earlier.ts'
import { isObject, type JsonObject, parseJsonText } from '../json-text.ts'
import type { Earlier, KeptItems } from '../openai/dialect.ts'
import { bodyLimits } from '../openai/request.ts'

/** The sender. `request`: the id of its request, used by a memory in another process. */
export type Sender = { readonly keyDigest: string; readonly request: string }

/** Facts of a response that can be read without its text. */
export type ResponseFacts = {
  /** Digest of the response before it; null if it builds on none. */
  readonly previous: string | null
  /** Whether its request's items are in the text. */
  readonly hasInput: boolean
  /** Whether no model outside the measured boundary may have answered its request. */
  readonly isInside: boolean
  /** Characters of its items. */
  readonly chars: number
  /** Memory of the text. */
  readonly bytes: number
  /** Lists, objects and their values in its items: each takes memory beyond its text. */
  readonly values: number
}

/** Responses by their digests. */
export type EarlierDigests = { readonly previous: string | null; readonly named: readonly string[] }

/** Sums over all responses that one request builds on, each counted once. */
export type EarlierSurvey = Pick<ResponseFacts, 'chars' | 'bytes' | 'values'> & {
  readonly count: number
  /** Whether one of them is restricted to models inside the attestation. */
  readonly isInside: boolean
  /** Digests of the chain, from the newest to the oldest. */
  readonly chain: readonly string[]
  /** Digests of all of them. */
  readonly all: readonly string[]
}

export type ResponseMemory = {
  /** Whether anything is kept. */
  readonly isOn: boolean
  /**
   * Sums up the responses without reading their texts. Skips named responses that are not stored for the key. Null if a
   * response of the chain is not stored. Ends once the sums exceed the limit of a request.
   */
  readonly survey: (digests: EarlierDigests, by: Sender) => EarlierSurvey | null | Promise<EarlierSurvey | null>
  readonly find: (digest: string, by: Sender) => string | null | Promise<string | null>
  readonly keep: (
    digest: string,
    kept: Sender & {
      readonly organizationId: string
      readonly text: string
      readonly facts: ResponseFacts
    },
  ) => void
}

export function createResponseMemory(
  clock: Pick<Clock, 'monotonicMs'>,
  limits: TextCacheLimits = keptResponsesDefault,
): ResponseMemory {
  const kept = new TextCache<ResponseFacts>({ clock, limits })
  return {
    isOn: kept.retentionMs > 0,
    survey: (digests, { keyDigest }) => surveyOf(digests, digest => kept.factsOf(digest, keyDigest)),
    find: (digest, { keyDigest }) => kept.findAndRenew(digest, keyDigest),
    keep: (digest, { organizationId, keyDigest, text, facts }) =>
      kept.keep(digest, { organizationId, keyDigest, text, facts }),
  }
}

/** Returns the name of a response in the memory. `id`: as `responseIn` returns it. */
export function digestOf(id: string): string {
  return Bun.CryptoHasher.hash('sha256', id, 'hex')
}

/** Characters of all responses that one request builds on. */
const earlierCharsMax = 4_194_304
/** Responses that one request builds on. No share: limits one request. */
const earlierCountMax = 1_024

function surveyOf(
  { previous, named }: EarlierDigests,
  factsOf: (digest: string) => ResponseFacts | null,
): EarlierSurvey | null {
  const counted = new Set<string>()
  const chain: string[] = []
  let sums = { count: 0, chars: 0, bytes: 0, values: 0, isInside: false }
  const add = (digest: string, { chars, bytes, values, isInside }: ResponseFacts) => {
    if (counted.has(digest)) return
    counted.add(digest)
    sums = {
      count: counted.size,
      chars: sums.chars + chars,
      bytes: sums.bytes + bytes,
      values: sums.values + values,
      isInside: sums.isInside || isInside,
    }
  }
  for (let digest = previous; digest !== null && excessOf(sums) === null; ) {
    const facts = factsOf(digest)
    if (facts === null || !facts.hasInput) return null
    chain.push(digest)
    add(digest, facts)
    digest = facts.previous
  }
  for (const digest of named) {
    const facts = excessOf(sums) === null ? factsOf(digest) : null
    if (facts !== null) add(digest, facts)
  }
  return { ...sums, chain, all: [...counted] }
}

/** Returns the bound that the sums exceed, in words; null if one request may build on them. */
function excessOf({ count, chars, values }: Pick<EarlierSurvey, 'count' | 'chars' | 'values'>): string | null {
  if (count > earlierCountMax) return `${earlierCountMax} responses`
  if (chars > earlierCharsMax) return `${earlierCharsMax} characters`
  return values > bodyLimits.valuesMax ? `${bodyLimits.valuesMax} values` : null
}

/** Copies of the text: the parsed items, the text of the chat, and its bytes for the upstream. */
const copies = 3
/** Memory that JavaScriptCore uses for an empty object, in bytes. */
const valueBytes = 64

/** Returns the memory that a request takes for the responses that it builds on, until an upstream has it. */
export function roomOf({ bytes, values }: Pick<EarlierSurvey, 'bytes' | 'values'>): number {
  return copies * bytes + valueBytes * values
}

/**
 * The stored parts of one response. `input`: null if it was too long. `shown`: what a client that retrieves the
 * response gets, without its output; null if it cannot be retrieved or is too long.
 */
type ResponseRecord = {
  readonly input: readonly JsonObject[] | null
  readonly output: readonly JsonObject[]
  readonly shown: JsonObject | null
}

/** `isShown`: whether the client may retrieve the response. */
export type KeptAs = { readonly isInside: boolean; readonly isShown: boolean }

/** Returns the text to keep, with its facts; null if the response is too long. */
export function keptText(
  { previous, inputText, response }: KeptItems,
  { isInside, isShown }: KeptAs,
): { readonly text: string; readonly facts: ResponseFacts } | null {
  const { id: _, previous_response_id: _2, output, ...shown } = response
  // Items without their ids, which contain the response's.
  const outputText = JSON.stringify(output.map(({ id: _, ...item }) => item))
  if (outputText.length > keptCharsMax) return null
  const hasInput = inputText !== null && inputText.length + outputText.length <= keptCharsMax
  const tags = output.map(({ id }) => String(id).split('_', 1)[0])
  const items = `{"input":${hasInput ? inputText : null},"output":${outputText}`
  const head = isShown ? `,"shown":${JSON.stringify({ ...shown, tags })}` : ''
  const text = `${items}${items.length + head.length <= keptCharsMax ? head : ''}}`
  const before = previous === null ? null : responseIn(previous)
  // A later request gets only the items.
  const sizes = { chars: items.length, bytes: measureBytes(text), values: valuesIn(items) }
  return { text, facts: { previous: before === null ? null : digestOf(before), hasInput, isInside, ...sizes } }
}

/** Counts values as `parseJsonText` does. */
function valuesIn(json: string): number {
  let values = 0
  for (let at = 0; at < json.length; at += 1) {
    const code = json.charCodeAt(at)
    if (code === 0x22) at = stringEnd(json, at)
    else if (code === 0x2c || code === 0x7b || code === 0x5b) values += 1
  }
  return values
}

type EarlierDeps = {
  readonly memory: ResponseMemory
  readonly by: Sender
  /** Reserves the memory for reading them, before reading begins. Faults end the request. */
  readonly reserve: (survey: EarlierSurvey) => void | Promise<void>
}

type EarlierItems = { readonly earlier: Earlier; readonly isInside: boolean }

const inTurns = createCooperativeQueue()

/**
 * Returns everything that a request builds on, without items that are not stored. Faults: not_found for a response of
 * the chain that is not stored, body_too_large, and those of `reserve`.
 */
export async function earlierOf({ memory, by, reserve }: EarlierDeps, ids: EarlierIds): Promise<EarlierItems> {
  const first = ids.previous === null ? null : responseIn(ids.previous)
  if (ids.previous !== null && first === null) throw noSuchResponse()
  const places = new Map(ids.named.flatMap(id => placeWithDigest(id) ?? []))
  const digests = {
    previous: first === null ? null : digestOf(first),
    named: [...new Set(places.values().map(({ digest }) => digest))],
  }
  const survey = await memory.survey(digests, by)
  if (survey === null) throw noSuchResponse()
  const excess = excessOf(survey)
  if (excess !== null) throw tooMuchEarlier(fieldOf(ids), excess)
  await reserve(survey)
  // Another response may be stored by now; its size was not counted.
  const all = new Set(survey.all)
  const reader = new Reader(digest => (all.has(digest) ? memory.find(digest, by) : null))
  const items: JsonObject[][] = []
  for (const digest of survey.chain) {
    const kept = await reader.read(digest)
    if (kept === null || kept.input === null) throw noSuchResponse()
    items.push([...kept.input, ...kept.output])
  }
  const named = new Map<string, JsonObject>()
  for (const [id, { digest, at }] of places) {
    const item = (await reader.read(digest))?.output[at]
    if (item !== undefined) named.set(id, item)
  }
  return { earlier: { items: items.toReversed().flat(), named }, isInside: survey.isInside }
}

type ItemPlace = { readonly digest: string; readonly at: number }

/** Returns the item's place with its response's digest; null for an id that is not of this gateway. */
function placeWithDigest(id: string): [[id: string, ItemPlace]] | null {
  const place = placeOfItem(id)
  return place === null ? null : [[id, { digest: digestOf(place.response), at: place.at }]]
}

/** Reads each response once, each in a separate turn of the event loop. */
class Reader {
  readonly #find: (digest: string) => string | null | Promise<string | null>
  readonly #read = new Map<string, ResponseRecord | null>()

  constructor(find: (digest: string) => string | null | Promise<string | null>) {
    this.#find = find
  }

  async read(digest: string): Promise<ResponseRecord | null> {
    const known = this.#read.get(digest)
    if (known !== undefined) return known
    const text = await this.#find(digest)
    const kept = text === null ? null : await readKept(text)
    this.#read.set(digest, kept)
    return kept
  }
}

/** Reads a stored text in a separate turn of the event loop. */
export function readKept(text: string): Promise<ResponseRecord | null> {
  return inTurns(parsed(text))
}

function* parsed(text: string): Turns<ResponseRecord | null> {
  yield
  const value = parseJsonText(text, bodyLimits)
  if (!isObject(value)) return null
  const { input, output, shown } = value
  return {
    input: Array.isArray(input) ? input : null,
    output: Array.isArray(output) ? output : [],
    shown: isObject(shown) ? shown : null,
  }
}
