// The last lines of this VM's log, for its host to read: ids and codes, never text of a request. Effects: memory.

import type { EnclaveReport } from '../contract/vm/enclave-responses.ts'

const linesMax = 512
/**
 * Bound of the wire (contract/vm/enclave.ts). As JSON at most six bytes per character: a report has room for a line.
 */
const lineCharsMax = 1024
const reportLinesMax = 32
/** Bound of a report's lines as JSON: metrics fit beside them into one line of the channel. */
const reportBytesMax = 24_576

export class LogLines {
  readonly #lines: string[] = []
  /** Number of the first line that is kept. */
  #first = 0

  /** A sink for base/log.ts. */
  readonly add = (line: string): void => {
    this.#lines.push(line.slice(0, lineCharsMax))
    if (this.#lines.length <= linesMax) return
    this.#lines.shift()
    this.#first += 1
  }

  /** Lines from that number on, or from the first that is kept, as many as a report has room for. */
  from(seq: number): EnclaveReport['log'] {
    const start = Math.min(Math.max(0, seq - this.#first), this.#lines.length)
    const found: EnclaveReport['log'] = []
    let bytes = 0
    for (const line of this.#lines.slice(start, start + reportLinesMax)) {
      bytes += Buffer.byteLength(JSON.stringify(line))
      if (bytes > reportBytesMax) break
      found.push({ seq: this.#first + start + found.length, line })
    }
    return found
  }
}
