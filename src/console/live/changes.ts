// Topics that have changed since the last look. Effects: through functions; state is what was seen.

export const TOPICS = ['instances', 'organizations', 'keys', 'builds', 'gateway', 'events', 'status'] as const
export type Topic = (typeof TOPICS)[number]

/** Topics whose text may return to an earlier value, so an equal text does not prove that nothing happened. */
const RETURNING: readonly Topic[] = ['gateway', 'status']

/** Text for each topic that differs when it has changed. */
export type Marks = Readonly<Record<Topic, string>>

export class Changes {
  readonly #marks: () => Marks
  #seen: Marks | null = null

  constructor(marks: () => Marks) {
    this.#marks = marks
  }

  /** Topics that changed since the last call; none at the first. */
  look(): Topic[] {
    const before = this.#seen
    const now = this.#marks()
    this.#seen = now
    return before === null ? [] : TOPICS.filter(topic => before[topic] !== now[topic])
  }

  /** The present, for `since`. */
  cursor(): string {
    const now = this.#marks()
    return TOPICS.map(topic => digestOf(now[topic])).join('.')
  }

  /** Topics of which a document that was asked for after this cursor may be out of date by now. */
  since(cursor: string): Topic[] {
    const then = cursor.split('.')
    const now = this.#marks()
    return TOPICS.filter((topic, at) => RETURNING.includes(topic) || then[at] !== digestOf(now[topic]))
  }

  /** The next look finds no change. */
  forget(): void {
    this.#seen = null
  }
}

const digestChars = 16

function digestOf(text: string): string {
  return new Bun.CryptoHasher('sha256').update(text).digest('hex').slice(0, digestChars)
}
