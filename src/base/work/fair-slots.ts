// A bounded number of slots to take and give back. No owner can hold more than its share. Pure: state in memory.

/** The owner may hold a `parts`-th of all slots, and at least one. */
export type SlotOwner = { readonly name: string; readonly parts: number }

/** `own`: an owner holds its share. `all`: there is no slot. */
type SlotRefusal = 'own' | 'all'

export class FairSlots {
  readonly #countMax: number
  readonly #held = new Map<string, number>()
  #count = 0

  constructor(countMax: number) {
    this.#countMax = countMax
  }

  get count(): number {
    return this.#count
  }

  /** Owners that hold a slot. */
  get owners(): number {
    return this.#held.size
  }

  /** Places that count for each of these owners; the function gives them back, once. */
  take(owners: readonly SlotOwner[], count = 1): (() => void) | SlotRefusal {
    if (owners.some(({ name, parts }) => this.#heldBy(name) + count > shareOf(this.#countMax, parts))) return 'own'
    if (this.#count + count > this.#countMax) return 'all'
    this.#add(owners, count)
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.#add(owners, -count)
    }
  }

  #heldBy(name: string): number {
    return this.#held.get(name) ?? 0
  }

  #add(owners: readonly SlotOwner[], count: number): void {
    this.#count += count
    for (const { name } of owners) {
      const held = this.#heldBy(name) + count
      if (held === 0) this.#held.delete(name)
      else this.#held.set(name, held)
    }
  }
}

/** A `parts`-th, and at least one. */
export function shareOf(countMax: number, parts: number): number {
  return Math.max(1, Math.floor(countMax / parts))
}
