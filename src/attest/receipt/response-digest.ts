// Digests of a request and of a response's events for response receipts. Pure: the caller supplies hashes.
//
// The chain depends only on the bytes, not on how they were split. An event ends after each `\n\n`, and any rest after
// the last one is an event too. h0 = SHA-256( `strongroom/response/v4 response`, NUL, salt ), h(n) = SHA-256( h(n-1) ||
// SHA-256(event n) ). The events' hashes make it possible to reveal one event without the others.

import { concat, utf8 } from '../../base/bytes.ts'
import { type ResponseClaim, responseFormat } from './response.ts'

/** Incremental SHA-256. `digest` is called once, at the end. */
export type Sha256Stream = { readonly update: (bytes: Uint8Array) => unknown; readonly digest: () => Uint8Array }

type ResponseChain = {
  /** Adds the response's next bytes. */
  readonly update: (bytes: Uint8Array) => void
  /** Ends the chain and returns the result. */
  readonly finish: () => Pick<ResponseClaim, 'answerDigest' | 'eventCount' | 'sizeBytes'>
}

/** Returns SHA-256( `strongroom/response/v4 request`, NUL, salt, body ). */
export function requestDigest(newSha256: () => Sha256Stream, salt: Uint8Array, body: Uint8Array): Uint8Array {
  const hash = newSha256()
  hash.update(requestTag)
  hash.update(salt)
  hash.update(body)
  return hash.digest()
}

/** Computes `requestDigest` in steps of one MiB, for large bodies. */
export function* requestDigestTurns(
  newSha256: () => Sha256Stream,
  salt: Uint8Array,
  body: Uint8Array,
): Generator<void, Uint8Array, void> {
  const hash = newSha256()
  hash.update(requestTag)
  hash.update(salt)
  for (let at = 0; at < body.length; at += hashedPerTurn) {
    if (at > 0) yield
    hash.update(body.subarray(at, at + hashedPerTurn))
  }
  return hash.digest()
}

export function createResponseChain(newSha256: () => Sha256Stream, salt: Uint8Array): ResponseChain {
  const first = newSha256()
  first.update(responseTag)
  first.update(salt)
  let link = first.digest()
  let event: Sha256Stream | null = null
  let lastWasNewline = false
  let eventCount = 0
  let sizeBytes = 0
  const take = (part: Uint8Array) => {
    event ??= newSha256()
    event.update(part)
  }
  const endEvent = () => {
    if (event === null) return
    const next = newSha256()
    next.update(concat(link, event.digest()))
    link = next.digest()
    event = null
    lastWasNewline = false
    eventCount += 1
  }
  return {
    update: bytes => {
      sizeBytes += bytes.length
      let from = 0
      for (let at = bytes.indexOf(newline); at !== -1; at = bytes.indexOf(newline, at + 1)) {
        // The preceding byte, in this piece or the one before, must be a line break too.
        const ends = at > from ? bytes[at - 1] === newline : lastWasNewline
        if (!ends) continue
        take(bytes.subarray(from, at + 1))
        endEvent()
        from = at + 1
      }
      if (from === bytes.length) return
      take(bytes.subarray(from))
      lastWasNewline = bytes[bytes.length - 1] === newline
    },
    finish: () => {
      endEvent()
      return { answerDigest: link, eventCount, sizeBytes }
    },
  }
}

const newline = 0x0a
const hashedPerTurn = 1_048_576
const requestTag = utf8(`${responseFormat} request\0`)
const responseTag = utf8(`${responseFormat} response\0`)
