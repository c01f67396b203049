// Entries by name that are dropped after a time without use. Pure: takes the time.

/** `idleMs`: an entry that is unused for this long holds nothing that counts. */
export class IdleMap<Entry extends { readonly usedAtMs: number }> extends Map<string, Entry> {
  readonly #idleMs: number
  #sweptAtMs: number

  constructor(idleMs: number, nowMs: number) {
    super()
    this.#idleMs = idleMs
    this.#sweptAtMs = nowMs
  }

  /** Drops unused entries, at most once in `idleMs`. Entries that `isHeld` names stay. */
  sweep(nowMs: number, isHeld: (entry: Entry) => boolean = () => false): void {
    if (nowMs - this.#sweptAtMs < this.#idleMs) return
    this.#sweptAtMs = nowMs
    for (const [name, entry] of this) {
      if (nowMs - entry.usedAtMs >= this.#idleMs && !isHeld(entry)) this.delete(name)
    }
  }
}
