// Topics that have changed since the last look. Effects: through functions; state is what was seen.

export const TOPICS = ['instances', 'organizations', 'keys', 'builds', 'gateway', 'events', 'status'] as const
export type Topic = (typeof TOPICS)[number]

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

  /** The next look finds no change. */
  forget(): void {
    this.#seen = null
  }
}
