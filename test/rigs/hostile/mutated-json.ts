// Seeded mutations of JSON, for tests that must hold for whatever a client puts into a field, calls a field, or
// repeats. Pure. For byte strings there is fuzz.ts.

import type { Json } from '../dialects/requests.ts'
import type { Below } from './fuzz.ts'

/** Names that may break code where names become paths: brackets, steps, prototypes, lengths. */
const NAMES = [
  ...['a[b]', '[0]', '[', ']', '].', '.', '..', '', 'a.b.c', '\u{e000}', '\ud800', 'x'.repeat(300), '['.repeat(300)],
  ...['__proto__', 'constructor', 'toString', 'length', 'model', 'messages', 'input', 'type', 'tools', 'content'],
]

const VALUES: readonly Json[] = [
  ...[null, true, false, 0, -1, 1.5, 1e308, 2 ** 60, '', 'x', '[', ']', '.', 'data:', '__proto__', '\ud800', '\0'],
  ...['x'.repeat(5_000), '{}', [], {}, [[]], [null], { a: 1 }, { type: 'text' }, { type: 'tool_use' }, [[[[[[]]]]]]],
]

const repeatsMax = 50

type JsonSlot = { readonly holder: Json[] | { [name: string]: Json }; readonly name: string | number }

/** A copy with one to four changes. */
export function mutatedJson(sample: Json, below: Below): Json {
  const value = structuredClone(sample)
  for (let left = 1 + below(4); left > 0; left -= 1) change(value, below)
  return value
}

function change(value: Json, below: Below): void {
  const places = placesIn(value)
  const pick = () => places[below(places.length)]
  const [place, other] = [pick(), pick()]
  if (place === undefined || other === undefined) return
  const odd = () => structuredClone(VALUES[below(VALUES.length)] ?? null)
  const hostile = { holder: place.holder, name: NAMES[below(NAMES.length)] ?? '' }
  const copy = () => structuredClone(valueAt(place))
  const changes = [
    () => put(place, odd()),
    () => remove(place),
    () => put(hostile, odd()),
    () => put(hostile, copy()),
    () => put(place, structuredClone(valueAt(other))),
    () => put(place, Array.from({ length: below(repeatsMax) }, copy)),
  ]
  changes[below(changes.length)]?.()
}

/** An element of a list becomes null. */
function remove({ holder, name }: JsonSlot): void {
  if (Array.isArray(holder)) put({ holder, name }, null)
  else delete holder[name]
}

/** Any name becomes a field of its own; in a list, one more element. */
function put({ holder, name }: JsonSlot, value: Json): void {
  if (Array.isArray(holder) && typeof name === 'string') holder.push(value)
  else Object.defineProperty(holder, name, { value, enumerable: true, configurable: true, writable: true })
}

function valueAt({ holder, name }: JsonSlot): Json {
  return Object.getOwnPropertyDescriptor(holder, name)?.value ?? null
}

function placesIn(value: Json): JsonSlot[] {
  if (typeof value !== 'object' || value === null) return []
  const names = Array.isArray(value) ? value.keys() : Object.keys(value)
  return [...names].flatMap(name => {
    const place = { holder: value, name }
    return [place, ...placesIn(valueAt(place))]
  })
}
