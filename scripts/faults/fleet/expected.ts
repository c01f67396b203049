// Losses that the operator's faults explain, for a checker. State in memory.

export type UsageRow = { readonly id: string; readonly month: string; readonly key: string; readonly cost: number }

/** A request, by the monotonic clock. */
export type Span = { readonly beganMs: number; readonly endedMs: number }

export class Expected {
  /** Instances, by name, whose VMs a fault ended. */
  readonly mayHaveFailed = new Set<string>()
  /** Usage that hosts had reported before an older copy of their records was put back, by the host's name. */
  readonly reported = new Map<string, readonly UsageRow[]>()
  /** Requests that ended with a host's records, before they were reported. */
  readonly unreported = new Set<string>()
  /** Whether an instance may have had VMs on two hosts. */
  mayHaveMoved = false
  readonly #undone: { readonly beganMs: number; endedMs: number }[] = []

  /** How many dumps were restored. */
  get restores(): number {
    return this.#undone.length
  }

  /** A dump that was begun at `beganMs` is being restored. Returns a function to call at the end of that. */
  restoring(beganMs: number): () => void {
    const undone = { beganMs, endedMs: Number.POSITIVE_INFINITY }
    this.#undone.push(undone)
    return () => {
      undone.endedMs = performance.now()
    }
  }

  /** Reports whether a restored dump may lack what this request changed. */
  isUndone({ beganMs, endedMs }: Span): boolean {
    return this.#undone.some(undone => endedMs > undone.beganMs && beganMs < undone.endedMs)
  }
}
