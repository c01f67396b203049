// Finished spans of this VM's requests until its host fetches them. Bounded memory: drops the oldest.

import { spansPieceMax } from '../contract/vm/enclave.ts'
import type { EnclaveSpans } from '../contract/vm/enclave-responses.ts'
import type { TraceSpan } from '../contract/vm/span.ts'

/** No share: spans affect no decision; the oldest are dropped and counted. */
const spansMax = 4_096
/** Bound of a response's spans as JSON: it fits into a line of the channel. */
const pieceBytesMax = 98_304

export class SpanSpool {
  readonly #spans: TraceSpan[] = []
  /** Number of the first that is kept. */
  #first = 0

  readonly add = (span: TraceSpan): void => {
    this.#spans.push(span)
    if (this.#spans.length > spansMax) this.#forget(1)
  }

  /** Spans from that number on, or from the first that is kept, as far as they fit. Drops those before. */
  from(number: number): EnclaveSpans {
    this.#forget(Math.min(Math.max(0, number - this.#first), this.#spans.length))
    const spans: TraceSpan[] = []
    let bytes = 0
    for (const span of this.#spans.slice(0, spansPieceMax)) {
      bytes += Buffer.byteLength(JSON.stringify(span))
      if (bytes > pieceBytesMax) break
      spans.push(span)
    }
    return { first: this.#first, spans }
  }

  #forget(count: number): void {
    this.#spans.splice(0, count)
    this.#first += count
  }
}
