// Changes to a checked chat request before an engine gets it: parts that clients replay from earlier answers and
// engines reject, and dropped fields. Pure.

import { stringEnd } from '../../base/json.ts'
import { type JsonObject, membersOf, replaceLoneSurrogates } from '../json-text.ts'

/** The changes of one request, collected while it is checked. Most requests have none. */
export class Repairs {
  #changed: Set<string> | null = null
  #ignored: Set<string> | null = null
  #valuesLeft = checkedValuesMax
  /** Whether messages of the assistant have reasoning. */
  hasReasoning = false
  /** Whether arguments of a call contained half a surrogate pair. */
  hasHalfPairs = false

  /** Members whose text differs from the client's. */
  get changed(): ReadonlySet<string> | null {
    return this.#changed
  }

  /** Names of dropped parts. */
  get ignored(): readonly string[] {
    return this.#ignored === null ? NONE : [...this.#ignored]
  }

  /**
   * Returns the arguments of a call in a form that engines parse. Some answer 500 to invalid JSON, which another engine
   * may have generated before it was cut off. Null if they need no change, or are too long to be checked.
   */
  argumentsOf(args: string): string | null {
    if (args.trim() === '') return '{}'
    const whole = replaceLoneSurrogates(args)
    if (whole !== args) this.hasHalfPairs = true
    const repaired = whole === args ? null : whole
    this.#valuesLeft -= valuesIn(args, this.#valuesLeft)
    if (this.#valuesLeft < 0) return repaired
    try {
      JSON.parse(whole)
      return repaired
    } catch {
      return JSON.stringify({ unparsed_arguments: whole })
    }
  }

  /** Records a change. `ignored`: the name of the dropped part, for the client. */
  note(member: string, ignored: string | null = null): void {
    this.#changed ??= new Set()
    this.#changed.add(member)
    if (ignored === null) return
    this.#ignored ??= new Set()
    this.#ignored.add(ignored)
  }
}

const NONE: readonly string[] = []

/**
 * Maximum number of values that are checked in the arguments of all calls. JSON.parse takes 0.2 s for two million
 * lists.
 */
const checkedValuesMax = 65_536

/** Returns an upper bound of the number of values in a text; counting ends beyond `max`. The text need not be JSON. */
function valuesIn(text: string, max: number): number {
  let values = 1
  for (let at = 0; at < text.length && values <= max; at += 1) {
    const code = text.charCodeAt(at)
    if (code === 0x22) at = stringEnd(text, at)
    else if (code === 0x2c || code === 0x5b || code === 0x7b) values += 1
  }
  return values
}

/** Returns the text of a body with its changed members: rewritten, removed or appended. */
export function repairedText(text: string, body: JsonObject, changed: ReadonlySet<string>): string {
  const kept = membersOf(text).filter(({ name }) => !changed.has(name) || Object.hasOwn(body, name))
  const names = new Set(kept.map(({ name }) => name))
  const written = (name: string) => `${JSON.stringify(name)}:${JSON.stringify(body[name])}`
  const members = kept.map(member => (changed.has(member.name) ? written(member.name) : member.text))
  const added = [...changed].filter(name => !names.has(name) && Object.hasOwn(body, name)).map(written)
  return `{${[...members, ...added].join(',')}}`
}
