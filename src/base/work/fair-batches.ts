// Runs work in batches, one after the other, owners in turn: an owner with much work delays only itself. No I/O.

import { assert } from '../assert.ts'

/** Resolves with one result for each item, in their order. */
export type BatchWork<Item, Result> = (items: readonly Item[]) => Promise<readonly Result[]>

type Piece<Item, Result> = {
  readonly owner: string
  readonly item: Item
  readonly settled: PromiseWithResolvers<Result>
}

export class FairBatches<Item, Result> {
  readonly #work: BatchWork<Item, Result>
  readonly #batchMax: number
  /** Waiting pieces by owner, the owner whose turn is next first. */
  readonly #waiting = new Map<string, Piece<Item, Result>[]>()
  /** Pieces by owner that run or wait. */
  readonly #sizes = new Map<string, number>()
  #isRunning = false
  /** Owner of the piece that was taken last. */
  #last: string | null = null

  /** `batchMax`: items of a batch. */
  constructor(work: BatchWork<Item, Result>, batchMax: number) {
    assert(batchMax >= 1, 'a batch has an item')
    this.#work = work
    this.#batchMax = batchMax
  }

  /** The item's result. Rejects with the failure of its batch. */
  run(owner: string, item: Item): Promise<Result> {
    const piece = { owner, item, settled: Promise.withResolvers<Result>() }
    const waiting = this.#waiting.get(owner)
    if (waiting === undefined) this.#waiting.set(owner, [piece])
    else waiting.push(piece)
    this.#sizes.set(owner, this.size(owner) + 1)
    if (!this.#isRunning) this.#begin()
    return piece.settled.promise
  }

  /** How many pieces of this owner's work run or wait. */
  size(owner: string): number {
    return this.#sizes.get(owner) ?? 0
  }

  #begin(): void {
    const batch = this.#take()
    this.#isRunning = batch.length > 0
    if (batch.length === 0) return
    this.#resultsOf(batch).then(
      results => this.#end(batch, ({ settled }, at) => settled.resolve(results[at] as Result)),
      error => this.#end(batch, ({ settled }) => settled.reject(error)),
    )
  }

  async #resultsOf(batch: readonly Piece<Item, Result>[]): Promise<readonly Result[]> {
    const results = await this.#work(batch.map(({ item }) => item))
    assert(results.length === batch.length, 'each item has a result')
    return results
  }

  /** The next batch begins before anybody acts on the results of this one. */
  #end(batch: readonly Piece<Item, Result>[], settle: (piece: Piece<Item, Result>, at: number) => void): void {
    for (const { owner } of batch) {
      const size = this.size(owner) - 1
      if (size === 0) this.#sizes.delete(owner)
      else this.#sizes.set(owner, size)
    }
    this.#begin()
    batch.forEach(settle)
  }

  /** One piece of each owner in turn, until the batch is full or nothing waits. */
  #take(): Piece<Item, Result>[] {
    const batch: Piece<Item, Result>[] = []
    while (batch.length < this.#batchMax) {
      const [first, second] = this.#waiting
      // An owner that comes back right after its turn is not first again.
      const next = second !== undefined && first?.[0] === this.#last ? second : first
      if (next === undefined) break
      const [owner, pieces] = next
      this.#last = owner
      const piece = pieces.shift()
      // Behind all others.
      this.#waiting.delete(owner)
      if (pieces.length > 0) this.#waiting.set(owner, pieces)
      if (piece !== undefined) batch.push(piece)
    }
    return batch
  }
}
