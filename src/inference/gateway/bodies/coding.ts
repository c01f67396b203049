// Request bodies with a Content-Encoding (RFC 9110, section 8.4): gzip, and zstd (RFC 8878). Bodies
// are decoded one at a time, organizations in turn, so that an organization with many delays only
// itself, and one decoder's window is all that decoding holds beside the body. Effects: threads of
// the runtime.

import { constants, createGunzip, createZstdDecompress } from 'node:zlib'
import { Fault } from '../../../base/fault.ts'
import { FairSerial } from '../../../base/work/fair-serial.ts'
import { GrowingBytes, tooLarge } from '../../../http/body.ts'
import { invalidRequest } from '../../json-text.ts'

export type Coding = 'gzip' | 'zstd'

/** Null for a plain body. Fault unsupported_media_type. */
export function codingOf(headers: Headers): Coding | null {
  const value = headers.get('content-encoding')
  if (value === null) return null
  const name = value.trim().toLowerCase()
  if (name === '' || name === 'identity') return null
  if (name === 'gzip' || name === 'x-gzip') return 'gzip'
  if (name === 'zstd') return 'zstd'
  throw new Fault(
    'unsupported_media_type',
    'Content-Encoding must be gzip or zstd, and only one of them. Change or remove the header.',
    { param: 'content-encoding' },
  )
}

export type CodedBody = {
  readonly body: Uint8Array
  readonly coding: Coding
  /** The organization. */
  readonly owner: string
  readonly signal: AbortSignal
  /** Longest decoded body. */
  readonly bytesMax: number
  /** Up to this many bytes no memory is taken. */
  readonly freeBytes: number
  /** Called before the body grows beyond `freeBytes`, and again each time its memory doubles. BusyFault. */
  readonly takeRoom: (bytes: number) => void
}

/** Returns the decoded body. Faults: invalid_request, body_too_large; BusyFault. Rejects with the signal's reason. */
export type DecodeBody = (coded: CodedBody) => Promise<Uint8Array>

export function createDecodeBody(): DecodeBody {
  const turns = new FairSerial()
  return coded => turns.run(coded.owner, () => decode(coded))
}

/** Decoded in one step of a thread of the runtime, in a millisecond at most. */
const pieceBytes = 131_072
/** The runtime passes on pieces that are ready without a look at anything else. */
const bytesPerTurn = 524_288
/** 8 MiB, as clients of HTTP may need at most (RFC 9659). */
const windowBits = 23

async function decode({ body, coding, signal, bytesMax, freeBytes, takeRoom }: CodedBody): Promise<Uint8Array> {
  signal.throwIfAborted()
  // The decoder itself reports no frame that is cut off, and ignores other bytes after one.
  if (coding === 'zstd' && !isWholeZstd(body)) throw broken(coding)
  const decoder =
    coding === 'gzip'
      ? createGunzip({ chunkSize: pieceBytes })
      : createZstdDecompress({ chunkSize: pieceBytes, params: { [constants.ZSTD_d_windowLogMax]: windowBits } })
  const decoded = new GrowingBytes(Math.min(pieceBytes, bytesMax), bytesMax)
  let roomBytes = freeBytes
  let turnEndBytes = bytesPerTurn
  const pieces: AsyncIterator<Uint8Array> = decoder[Symbol.asyncIterator]()
  decoder.end(body)
  try {
    for (let next = await nextOf(pieces, coding); next !== null; next = await nextOf(pieces, coding)) {
      signal.throwIfAborted()
      const bytes = decoded.length + next.length
      if (bytes > bytesMax) throw tooLarge(bytesMax)
      while (bytes > roomBytes) {
        const wholeBytes = Math.min(2 * roomBytes, bytesMax)
        takeRoom(roomBytes === freeBytes ? wholeBytes : wholeBytes - roomBytes)
        roomBytes = wholeBytes
      }
      await decoded.add(next)
      if (decoded.length >= turnEndBytes) {
        turnEndBytes = decoded.length + bytesPerTurn
        await new Promise<void>(resolve => setImmediate(resolve))
      }
    }
  } finally {
    decoder.destroy()
  }
  if (decoded.length === 0) throw invalidRequest('The body is empty; a JSON object is expected.')
  return decoded.whole()
}

async function nextOf(pieces: AsyncIterator<Uint8Array>, coding: Coding): Promise<Uint8Array | null> {
  try {
    const { done, value } = await pieces.next()
    return done === true ? null : value
  } catch (cause) {
    throw broken(coding, cause)
  }
}

function broken(coding: Coding, cause?: unknown): Fault {
  const window = coding === 'zstd' ? `, with a window of at most ${2 ** (windowBits - 20)} MiB,` : ''
  return new Fault(
    'invalid_request',
    `The body is not valid ${coding}, or is cut off, or has other bytes after its end. Compress the whole body once${window} or send it without the Content-Encoding header.`,
    { param: 'content-encoding', cause },
  )
}

/** Blocks and frames; an encoder makes a block for each 128 KiB, or for each time that it is flushed. */
const frameStepsMax = 65_536
const zstdMagic = 0xfd2fb528
/** The last four bits are free. */
const skippableMagic = 0x184d2a5

/** Reports whether the bytes are whole frames of zstd, with nothing after them. */
function isWholeZstd(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  let at = 0
  let steps = 0
  try {
    while (at < bytes.length && steps < frameStepsMax) {
      const magic = view.getUint32(at, true)
      steps += 1
      if (magic >>> 4 === skippableMagic) {
        at += 8 + view.getUint32(at + 4, true)
        continue
      }
      if (magic !== zstdMagic) return false
      const descriptor = view.getUint8(at + 4)
      at += 5 + headerBytes(descriptor)
      for (let isLast = false; !isLast && steps < frameStepsMax; steps += 1) {
        const block = view.getUint16(at, true) | (view.getUint8(at + 2) << 16)
        isLast = (block & 1) === 1
        // A block of one byte that is repeated has only that byte.
        at += 3 + (((block >> 1) & 3) === 1 ? 1 : block >> 3)
      }
      if ((descriptor & 4) !== 0) at += 4
    }
  } catch {
    return false
  }
  return at === bytes.length
}

/** Bytes of a frame's header after the descriptor: window, id of a dictionary, and size of the content. */
function headerBytes(descriptor: number): number {
  const isSingle = (descriptor & 0x20) !== 0
  const sizeCode = descriptor >> 6
  const dictionaryBytes = [0, 1, 2, 4][descriptor & 3] ?? 0
  return (isSingle ? 0 : 1) + dictionaryBytes + (sizeCode === 0 ? (isSingle ? 1 : 0) : 2 ** sizeCode)
}
