// Reads plain data by name and refuses unknown names. Pure; throws Malformed, whose message names the field.

import { wellFormed } from '../malformed.ts'

/** The members of one object. `end` must be called last. */
export class Fields {
  readonly #members: ReadonlyMap<string, unknown>
  readonly #what: string
  readonly #taken = new Set<string>()

  constructor(value: unknown, what: string) {
    wellFormed(typeof value === 'object' && value !== null && !Array.isArray(value), `${what}: not an object`)
    this.#members = new Map(Object.entries(value))
    this.#what = what
  }

  has(name: string): boolean {
    return this.#members.has(name)
  }

  names(): string[] {
    return [...this.#members.keys()]
  }

  /** Any value; missing is an error. */
  take(name: string): unknown {
    this.#taken.add(name)
    wellFormed(this.#members.has(name), `${this.#what}: no ${name}`)
    return this.#members.get(name)
  }

  text(name: string): string {
    const value = this.take(name)
    wellFormed(typeof value === 'string', `${this.#path(name)}: not a text`)
    return value
  }

  textOrNull(name: string): string | null {
    return this.take(name) === null ? null : this.text(name)
  }

  /** Undefined when the member is missing. */
  optionalText(name: string): string | undefined {
    return this.has(name) ? this.text(name) : undefined
  }

  /** A whole number that is not negative. */
  count(name: string): number {
    const value = this.take(name)
    wellFormed(typeof value === 'number' && Number.isSafeInteger(value) && value >= 0, `${this.#path(name)}: no count`)
    return value
  }

  object(name: string): Fields {
    return new Fields(this.take(name), this.#path(name))
  }

  list<T>(name: string, read: (value: unknown, what: string) => T): T[] {
    const value = this.take(name)
    wellFormed(Array.isArray(value), `${this.#path(name)}: not a list`)
    return value.map((item, at) => read(item, `${this.#path(name)}[${at}]`))
  }

  end(): void {
    const [unknown] = this.names().filter(name => !this.#taken.has(name))
    wellFormed(unknown === undefined, `${this.#what}: the unknown field ${JSON.stringify(unknown)}`)
  }

  #path(name: string): string {
    return `${this.#what}.${name}`
  }
}
