// What the suite is given, as JSON: the files of test/vectors by path, and evidence that one runtime has simulated for all of them. Pure.

import { present } from '../../../src/base/assert.ts'
import { fromBase64, fromUtf8 } from '../../../src/base/bytes.ts'

export type SuiteInput = {
  /** By path below test/vectors; base64. */
  readonly files: Readonly<Record<string, string>>
  readonly simulated: {
    /** By product. Signatures are salted, so the same keys never make the same bytes twice. */
    readonly authorities: Readonly<Record<string, SimulatedVectors>>
    /** JSON text, by kind. */
    readonly receipts: Readonly<Record<string, string>>
  }
}

/** base64 in every leaf. */
export type SimulatedVectors = {
  readonly ark: string
  readonly ask: string
  readonly asvk: string
  readonly vcek: string
  readonly vlek: string
  readonly vcekReport: string
  readonly vlekReport: string
  readonly crls: Readonly<Record<SimulatedCrl, string>>
}

export const simulatedCrls = ['good', 'revokesAsk', 'revokesAsvk', 'old'] as const
export type SimulatedCrl = (typeof simulatedCrls)[number]

export class Vectors {
  readonly simulated: SuiteInput['simulated']
  readonly #files: SuiteInput['files']

  constructor(json: string) {
    const input: SuiteInput = JSON.parse(json)
    this.#files = input.files
    this.simulated = input.simulated
  }

  bytes(path: string): Uint8Array {
    return fromBase64Text(present(this.#files[path], `the suite was given ${path}`))
  }

  text(path: string): string {
    return fromUtf8(this.bytes(path))
  }

  /** The caller says what the file holds. */
  json<T>(path: string): T {
    return JSON.parse(this.text(path))
  }
}

export function fromBase64Text(text: string): Uint8Array {
  return present(fromBase64(text), 'base64')
}
