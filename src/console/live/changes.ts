// Detects topics that have changed since the last poll. Effects: through functions; the state is what was seen.

export const TOPICS = ['instances', 'organizations', 'keys', 'builds', 'gateway', 'events', 'status'] as const
export type Topic = (typeof TOPICS)[number]

/** Topics whose text may return to an earlier value, so equal text does not prove that nothing happened. */
const RETURNING: readonly Topic[] = ['gateway', 'status']

/** A text for each topic. It differs if the topic has changed. */
export type Marks = Readonly<Record<Topic, string>>

export class Changes {
  readonly #marks: () => Marks
  #seen: Marks | null = null

  constructor(marks: () => Marks) {
    this.#marks = marks
  }

  /** Returns the topics that changed since the last call; none for the first call. */
  look(): Topic[] {
    const before = this.#seen
    const now = this.#marks()
    this.#seen = now
    return before === null ? [] : TOPICS.filter(topic => before[topic] !== now[topic])
  }

  /** Returns a cursor for the current state, for `since`. */
  cursor(): string {
    const now = this.#marks()
    return TOPICS.map(topic => digestOf(now[topic])).join('.')
  }

  /** Returns the topics for which a document requested after this cursor may be stale. */
  since(cursor: string): Topic[] {
    const then = cursor.split('.')
    const now = this.#marks()
    return TOPICS.filter((topic, at) => RETURNING.includes(topic) || then[at] !== digestOf(now[topic]))
  }

  /** Forgets what was seen, so that the next poll reports no change. */
  forget(): void {
    this.#seen = null
  }
}

const digestChars = 16

function digestOf(text: string): string {
  return new Bun.CryptoHasher('sha256').update(text).digest('hex').slice(0, digestChars)
}
