// The last lines of this VM's log, for its host to read: ids and codes, never text of a request. Effects: memory.

import type { EnclaveReport } from '../contract/enclave.ts'

const linesMax = 512
/** As the wire allows (contract/enclave.ts). */
const lineCharsMax = 1024
const reportLinesMax = 32

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

  /** Lines from that number on, or from the first that is kept. */
  from(seq: number): EnclaveReport['log'] {
    const start = Math.min(Math.max(0, seq - this.#first), this.#lines.length)
    return this.#lines.slice(start, start + reportLinesMax).map((line, at) => ({ seq: this.#first + start + at, line }))
  }
}
