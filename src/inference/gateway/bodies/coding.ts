// Request bodies with a Content-Encoding (RFC 9110, section 8.4): gzip, and zstd (RFC 8878). Bodies are decoded one
// at a time, organizations in turn: an organization that sends many delays only its own, and the memory of one
// decoder is enough. Effects: threads of the runtime.

import { constants, createGunzip, createZstdDecompress } from 'node:zlib'
import { Fault } from '../../../base/fault.ts'
import { FairSerial } from '../../../base/work/fair-serial.ts'
import { GrowingBytes, tooLarge } from '../../../http/body.ts'
import { invalidRequest } from '../../json-text.ts'

export type Coding = 'gzip' | 'zstd'

/** Returns the coding of the body; null if it is plain. Fault unsupported_media_type. */
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
  /** Id of the organization. */
  readonly owner: string
  readonly signal: AbortSignal
  /** Longest decoded body. */
  readonly bytesMax: number
  /** Bytes that need no reservation of memory. */
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

/** Output of one decoding step, which takes a thread of the runtime at most a millisecond. */
const pieceBytes = 131_072
/** Decoded bytes after which other tasks run. Without that, the runtime delivers all ready pieces first. */
const bytesPerTurn = 524_288
/** 8 MiB, the most that RFC 9659 allows over HTTP. */
const windowBits = 23

async function decode({ body, coding, signal, bytesMax, freeBytes, takeRoom }: CodedBody): Promise<Uint8Array> {
  signal.throwIfAborted()
  // The decoder accepts a frame that is cut off, and ignores other bytes after a frame.
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
    `The body is not valid ${coding}, is cut off, or has extra bytes at its end. Compress the whole body once${window} or send it without the Content-Encoding header.`,
    { param: 'content-encoding', cause },
  )
}

/** Most blocks and frames of a body. Encoders write a block for each 128 KiB and for each flush. */
const frameStepsMax = 65_536
const zstdMagic = 0xfd2fb528
/** Magic number of a skippable frame, without its last four bits. */
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
        // A run-length block stores its byte once.
        at += 3 + (((block >> 1) & 3) === 1 ? 1 : block >> 3)
      }
      if ((descriptor & 4) !== 0) at += 4
    }
  } catch {
    return false
  }
  return at === bytes.length
}

/** Returns the length of a frame's header after the descriptor: window, dictionary id and content size. */
function headerBytes(descriptor: number): number {
  const isSingle = (descriptor & 0x20) !== 0
  const sizeCode = descriptor >> 6
  const dictionaryBytes = [0, 1, 2, 4][descriptor & 3] ?? 0
  return (isSingle ? 0 : 1) + dictionaryBytes + (sizeCode === 0 ? (isSingle ? 1 : 0) : 2 ** sizeCode)
}
