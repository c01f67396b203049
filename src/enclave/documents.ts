// Reassembles documents that the host sends in pieces, because a line of the channel is short. Memory is bounded by the
// largest document.

import { fromBase64, toHex } from '../base/bytes.ts'
import { documentBytesMax } from '../contract/vm/enclave.ts'
import { ok, type Refusal, refuse } from '../guest/wire.codec.ts'

export type DocumentName = keyof typeof documentBytesMax

type Piece = { readonly document: DocumentName; readonly offset: number; readonly bytes: string }

export class Documents {
  /** One document at a time: a piece of another document, or offset 0, starts over. */
  #name: DocumentName | null = null
  #pieces: Uint8Array[] = []
  #lengthBytes = 0

  /** `bytes` as base64. Refused: out of order, or longer than its kind may be. */
  add({ document, offset, bytes }: Piece): { readonly ok: true } | Refusal {
    const piece = fromBase64(bytes)
    if (piece === null) return refuse('bad_request', 'piece.bytes: not canonical base64')
    if (offset === 0) this.#begin(document)
    if (this.#name !== document || offset !== this.#lengthBytes) {
      const expected = this.#name === document ? this.#lengthBytes : 0
      return refuse('bad_request', `piece.offset: ${offset}; the next piece of this document begins at ${expected}`)
    }
    const most = documentBytesMax[document]
    if (offset + piece.length > most) {
      this.#begin(null)
      return refuse('bad_request', `piece: the document is longer than ${most} bytes`)
    }
    this.#pieces.push(piece)
    this.#lengthBytes += piece.length
    return ok
  }

  /** Returns and drops the whole document; null if the pieces do not have this SHA-256. */
  take(document: DocumentName, sha256: string): Uint8Array | null {
    if (this.#name !== document) return null
    const bytes = Uint8Array.from(Buffer.concat(this.#pieces))
    this.#begin(null)
    return toHex(new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))) === sha256 ? bytes : null
  }

  #begin(document: DocumentName | null): void {
    this.#name = document
    this.#pieces = []
    this.#lengthBytes = 0
  }
}
