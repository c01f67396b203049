// Changes to a checked chat request before an engine gets it: what clients replay of earlier answers and engines do not
// take, and what is left out. Pure.

import { type JsonObject, membersOf } from '../json-text.ts'

type RepairedMember = 'messages' | 'tools' | 'response_format'

/** The changes of one request, collected while it is checked. Most requests have none. */
export class Repairs {
  #changed: Set<RepairedMember> | null = null
  #ignored: Set<string> | null = null

  /** Members whose text differs from the client's. */
  get changed(): ReadonlySet<RepairedMember> | null {
    return this.#changed
  }

  /** Names of what was left out. */
  get ignored(): readonly string[] {
    return this.#ignored === null ? NONE : [...this.#ignored]
  }

  /** `ignored`: the name of what is left out, for the client. */
  note(member: RepairedMember, ignored: string | null = null): void {
    this.#changed ??= new Set()
    this.#changed.add(member)
    if (ignored === null) return
    this.#ignored ??= new Set()
    this.#ignored.add(ignored)
  }
}

const NONE: readonly string[] = []

/**
 * Arguments of a call as engines parse them: some answer 500 to text that is no JSON, which another engine may have
 * generated before it was cut off. Null: they are good as they are.
 */
export function repairedArguments(args: string): string | null {
  if (args.trim() === '') return '{}'
  try {
    JSON.parse(args)
    return null
  } catch {
    return JSON.stringify({ unparsed_arguments: args })
  }
}

/** The text of a body with its changed members written anew. */
export function repairedText(text: string, body: JsonObject, changed: ReadonlySet<string>): string {
  const members = membersOf(text).map(member =>
    changed.has(member.name) ? `${JSON.stringify(member.name)}:${JSON.stringify(body[member.name])}` : member.text,
  )
  return `{${members.join(',')}}`
}
