// Compiled schemas of one schema child. A schema is reused only in its own scope, because the time of a hit would
// reveal to another client that it sent the same schema. Pure except for its memory.

import type { ContentCheck } from './check.ts'
import type { Job } from './wire.ts'

/** Maximum characters of all schemas. Each counts `baseChars` more, so there are at most 64. */
const charsMax = 4 * 1_048_576
const baseChars = 65_536

type Entry = { readonly owner: string; readonly chars: number; readonly check: ContentCheck }

export class CompiledSchemas {
  readonly #compile: (schema: string) => ContentCheck
  /** Compiled schemas, the least recently used first. */
  readonly #entries = new Map<string, Entry>()

  constructor(compile: (schema: string) => ContentCheck) {
    this.#compile = compile
  }

  /** Returns the compiled schema. Rethrows errors of the compiler. */
  get({ owner, scope, schema }: Omit<Job, 'contents'>): ContentCheck {
    // Scopes contain no line break.
    const name = `${scope}\n${schema}`
    const check = this.#entries.get(name)?.check ?? this.#compile(schema)
    this.#entries.delete(name)
    this.#entries.set(name, { owner, chars: baseChars + schema.length, check })
    this.#dropBeyond()
    return check
  }

  /** Drops schemas beyond the bound: the owner with the most characters loses its least recently used one. */
  #dropBeyond(): void {
    const charsOf = new Map<string, number>()
    let chars = 0
    for (const entry of this.#entries.values()) {
      chars += entry.chars
      charsOf.set(entry.owner, (charsOf.get(entry.owner) ?? 0) + entry.chars)
    }
    while (chars > charsMax) {
      const largest = Math.max(...charsOf.values())
      const oldest = [...this.#entries].find(([, { owner }]) => charsOf.get(owner) === largest)
      if (oldest === undefined) return
      const [name, entry] = oldest
      this.#entries.delete(name)
      charsOf.set(entry.owner, largest - entry.chars)
      chars -= entry.chars
    }
  }
}
