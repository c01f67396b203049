// Frames: a u32be length and that many bytes (SPEC.md section 4.3). Pure. The reader buffers at most one frame.

import { concat } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'
import { SIZES } from './protocol.ts'

export type FrameLimits = {
  /** Largest ciphertext of one frame, in bytes. */
  readonly bytesMax: number
  /** Empty frames allowed in one body. */
  readonly emptyMax: number
}

/** Encodes the length prefix of a frame with this ciphertext. */
export function frameLength(ciphertext: Uint8Array): Uint8Array {
  const length = new Uint8Array(SIZES.frameLength)
  new DataView(length.buffer).setUint32(0, ciphertext.length)
  return length
}

export class FrameReader {
  readonly #limits: FrameLimits
  #pending: Uint8Array = new Uint8Array(0)
  /** Pieces of a frame whose length is known. They are joined only once, when the frame is complete. */
  #pieces: Uint8Array[] = []
  #piecesBytes = 0
  /** Length in bytes of the current frame; null while its length is being read. */
  #wantedBytes: number | null = null
  #emptyCount = 0

  constructor(limits: FrameLimits) {
    this.#limits = limits
  }

  /**
   * Returns the ciphertexts that these bytes complete; they may share memory with `bytes`. Throws Malformed for bad
   * lengths.
   */
  push(bytes: Uint8Array): Uint8Array[] {
    const frames: Uint8Array[] = []
    let rest = bytes
    while (rest.length > 0) {
      if (this.#wantedBytes === null) rest = this.#readLength(rest)
      else rest = this.#readContent(rest, this.#wantedBytes, frames)
    }
    return frames
  }

  /** Reports whether no frame is incomplete, so that the body may end here. */
  isClean(): boolean {
    return this.#wantedBytes === null && this.#pending.length === 0
  }

  #readLength(bytes: Uint8Array): Uint8Array {
    const missing = SIZES.frameLength - this.#pending.length
    this.#pending = concat(this.#pending, bytes.subarray(0, missing))
    if (this.#pending.length === SIZES.frameLength) {
      const length = new DataView(this.#pending.buffer).getUint32(0)
      this.#pending = new Uint8Array(0)
      if (length === 0) {
        this.#emptyCount += 1
        wellFormed(this.#emptyCount <= this.#limits.emptyMax, 'sealed body: too many empty frames')
      } else {
        wellFormed(length >= SIZES.tag, 'sealed body: a frame that is shorter than its tag')
        wellFormed(length <= this.#limits.bytesMax, `sealed body: a frame of more than ${this.#limits.bytesMax} bytes`)
        this.#wantedBytes = length
      }
    }
    return bytes.subarray(missing)
  }

  #readContent(bytes: Uint8Array, wantedBytes: number, frames: Uint8Array[]): Uint8Array {
    const piece = bytes.subarray(0, wantedBytes - this.#piecesBytes)
    this.#pieces.push(piece)
    this.#piecesBytes += piece.length
    if (this.#piecesBytes === wantedBytes) {
      frames.push(this.#pieces.length === 1 ? piece : concat(...this.#pieces))
      this.#pieces = []
      this.#piecesBytes = 0
      this.#wantedBytes = null
    }
    return bytes.subarray(piece.length)
  }
}
