// Runs work one piece after the other, owners in turn: an owner with much work delays only itself. No I/O.

import { createSerial, type Serial } from './serial.ts'

export class FairSerial {
  readonly #running = createSerial()
  /** Each owner has one piece at a time in the common queue. */
  readonly #owners = new Map<string, Serial>()

  /** Runs `work` after all earlier work of its owner and at most one piece of each other owner. */
  async run<T>(owner: string, work: () => Promise<T>): Promise<T> {
    const own = this.#owners.get(owner) ?? createSerial()
    this.#owners.set(owner, own)
    try {
      return await own.run(() => this.#running.run(work))
    } finally {
      if (own.size() === 0) this.#owners.delete(owner)
    }
  }

  /** How many pieces of this owner's work run or wait. */
  size(owner: string): number {
    return this.#owners.get(owner)?.size() ?? 0
  }
}
