// Recorded requests of agents as files without the agents' own texts. Pure.
//
// A text of a program becomes `{"filler": LENGTH, "id": N}`: the reader gets a text of that length which is the same
// for each N. Keys, types, names, enum values and our own texts stay. A part that several requests have stands once, in
// `pool`, and is `{"pool": INDEX}` where it was.

import type { Exchange } from './recorder.ts'

export type Session = { readonly name: string; readonly exchanges: readonly Exchange[] }

export type RecordedRequest = {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** Null if there was none. */
  readonly body: Json
}

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json }

type File<Request> = {
  readonly program: string
  readonly version: string
  readonly pool: readonly Json[]
  readonly sessions: Readonly<Record<string, readonly Request[]>>
}

/** Letters in a row that a file may not have of a program's text. */
const lettersMax = 40
/** Parts with fewer characters stand where they are. */
const pooledCharsMin = 60

/** Keys of free text: not even one word of it stays. */
const TEXT_KEYS: readonly string[] = ['description', 'text', 'instructions', 'title', 'content', 'output', 'definition']

/** Objects in which no text stays: ids of the machine, mostly. */
const METADATA: readonly string[] = ['metadata', 'client_metadata', 'prompt_cache_key']

/** Throws if the file has a text of the program. `own`: texts that stay. */
export function encodeSessions({
  program,
  version,
  sessions,
  own,
}: {
  readonly program: string
  readonly version: string
  readonly sessions: readonly Session[]
  readonly own: readonly string[]
}): string {
  const scrubbed = new Scrubbed(own)
  const requests = sessions.map(({ name, exchanges }) => [
    name,
    exchanges.map(({ method, path, headers, body }) => ({
      ...{ method, path, headers },
      body: body === '' ? null : scrubbed.value(JSON.parse(body) as Json, ''),
    })),
  ])
  const { pool, shared } = pooled(Object.fromEntries(requests) as Json)
  const lines = (parts: readonly Json[]) => parts.map(part => JSON.stringify(part)).join(',\n')
  const listed = Object.entries(shared as Record<string, readonly Json[]>).map(
    ([name, parts]) => `${JSON.stringify(name)}: [\n${lines(parts)}\n]`,
  )
  const head = `{"program": ${JSON.stringify(program)}, "version": ${JSON.stringify(version)}`
  const text = `${head}, "pool": [\n${lines(pool)}\n], "sessions": {\n${listed.join(',\n')}\n}}\n`
  const found = leaked([...scrubbed.replaced.keys()], text)
  if (found !== null) throw new Error(`the recorded requests of ${program} have a text of it: ${found}`)
  return text
}

export function decodeSessions(text: string): File<RecordedRequest> {
  const { pool, sessions, ...rest } = JSON.parse(text) as File<RecordedRequest>
  const whole = (value: Json): Json => {
    if (value === null || typeof value !== 'object') return value
    if (isList(value)) return value.map(whole)
    const { pool: index, filler: length, id } = value
    if (typeof index === 'number') return whole(pool[index] ?? null)
    if (typeof length === 'number' && typeof id === 'number') return fillerOf(id, length)
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, whole(inner)]))
  }
  return { ...rest, pool, sessions: whole(sessions as unknown as Json) as unknown as typeof sessions }
}

/** A text of this length that no other id has, if it is not very short. */
export function fillerOf(id: number, length: number): string {
  const word = `filler${id} `
  return word.repeat(Math.ceil(length / word.length)).slice(0, length)
}

class Scrubbed {
  readonly #own: ReadonlySet<string>
  /** Ids by text. */
  readonly replaced = new Map<string, number>()

  constructor(own: readonly string[]) {
    this.#own = new Set(own)
  }

  value(value: Json, key: string): Json {
    if (typeof value === 'string') return this.#isKept(value, key) ? value : this.#filler(value)
    if (value === null || typeof value !== 'object') return value
    if (isList(value)) return value.map(inner => this.value(inner, key))
    const nameOf = (name: string) => (METADATA.includes(key) ? key : name)
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, this.value(inner, nameOf(name))]))
  }

  #isKept(text: string, key: string): boolean {
    if (text === '' || this.#own.has(text)) return true
    // Base64 of our picture, and arguments that our model wrote.
    if (key === 'data' || key === 'image_url' || key === 'url') return text.length < 4_096
    if (key === 'arguments') return text.length < 400
    return ![...TEXT_KEYS, ...METADATA].includes(key) && text.length <= 64 && /^[\w.:/@$+*=^|,()[\]{}\\-]+$/.test(text)
  }

  #filler(text: string): Json {
    const id = this.replaced.get(text) ?? this.replaced.size + 1
    this.replaced.set(text, id)
    return { filler: text.length, id }
  }
}

/** Parts that stand several times move to the pool. */
function pooled(value: Json): { readonly pool: readonly Json[]; readonly shared: Json } {
  const counts = new Map<string, number>()
  const count = (part: Json): void => {
    if (part === null || typeof part !== 'object') return
    const text = JSON.stringify(part)
    const times = (counts.get(text) ?? 0) + 1
    counts.set(text, times)
    // The inside of a pooled part counts once.
    if (times === 1) for (const inner of Object.values(part)) count(inner)
  }
  count(value)
  const pool: Json[] = []
  const indices = new Map<string, number>()
  const share = (part: Json): Json => {
    if (part === null || typeof part !== 'object') return part
    const text = JSON.stringify(part)
    if (text.length < pooledCharsMin || (counts.get(text) ?? 0) < 2) return shallow(part)
    const known = indices.get(text)
    if (known !== undefined) return { pool: known }
    const inside = shallow(part)
    const index = pool.push(inside) - 1
    indices.set(text, index)
    return { pool: index }
  }
  const shallow = (part: Json): Json => {
    if (part === null || typeof part !== 'object') return part
    if (isList(part)) return part.map(share)
    return Object.fromEntries(Object.entries(part).map(([key, inner]) => [key, share(inner)]))
  }
  return { shared: share(value), pool }
}

/** The first run of letters of one of the texts that the file has, too; null if there is none. */
function leaked(texts: readonly string[], file: string): string | null {
  const runs = new Set<string>()
  for (const run of runsIn(file)) runs.add(run)
  for (const text of texts) for (const run of runsIn(text)) if (runs.has(run)) return run
  return null
}

function* runsIn(text: string): Generator<string> {
  const letters = text.replaceAll(/[^a-z]/gi, '').toLowerCase()
  for (let at = 0; at + lettersMax <= letters.length; at += 1) yield letters.slice(at, at + lettersMax)
}

function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value)
}
