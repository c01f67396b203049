// EHBP (encrypted HTTP body protocol) 0.1, as implemented by the npm package `ehbp`: names, sizes and labels. Pure.
// Specification: SPEC.md of github.com/tinfoilsh/encrypted-http-body-protocol. HPKE: RFC 9180.
//
// A body is a sequence of frames: a u32be length, then that many bytes of AES-256-GCM ciphertext with its tag. Frames
// of length zero are skipped. A request consists of the frames of one HPKE context in base mode. A response has its own
// key, derived from that context, the request's encapsulated key and a nonce. There is no end marker: readers of a
// response check that its content is complete (whole.ts).

import { utf8 } from '../../base/bytes.ts'

export const encapsulatedKeyHeader = 'Ehbp-Encapsulated-Key'
export const responseNonceHeader = 'Ehbp-Response-Nonce'

/** Path and media type of a server's key configuration. */
export const keyConfigPath = '/.well-known/hpke-keys'
export const keyConfigMediaType = 'application/ohttp-keys'

/** A server that cannot open a request responds with 422 and a problem document (RFC 9457) of this type. */
export const keyConfigProblem = {
  status: 422,
  mediaType: 'application/problem+json',
  type: 'urn:ietf:params:ehbp:error:key-config',
} as const

/**
 * This project's own header of a sealed response: headers that would reveal the body, as base64url of one more AES-GCM
 * ciphertext. The plaintext is a JSON object of lowercase names and text values. Other clients ignore it.
 */
export const sealedHeadersHeader = 'X-Strongroom-Sealed-Headers'
/**
 * A receipt holds hashes of the bodies, against which guesses could be tested; the others name fields of the request.
 */
export const sealedHeaderNames = ['x-strongroom-receipt', 'x-strongroom-ignored', 'x-strongroom-epoch'] as const
/** Length limit in characters of base64url. A receipt takes about 6,700. */
export const sealedHeadersLengthMax = 12_288

/**
 * Marks a bound request (session.ts): one encapsulation for many requests, each with its own nonce in hexadecimal. The
 * nonce is the server's replay epoch, then 16 random bytes.
 */
export const requestNonceHeader = 'X-Strongroom-Request-Nonce'
/**
 * The server's replay epoch in hexadecimal: in the clear with evidence, sealed with a response. With `staleEpoch`
 * before it, the header refuses a request because the request's epoch has ended.
 */
export const epochHeader = 'X-Strongroom-Epoch'
export const staleEpoch = 'stale '

/** Identifiers in IANA's HPKE registry: HKDF-SHA256, AES-256-GCM. */
export const kdfId = 0x0001
export const aeadId = 0x0002

/** Sizes in bytes. `responseNonce` is the larger of the AEAD's key and nonce (RFC 9458 section 4.4). */
export const SIZES = {
  key: 32,
  nonce: 12,
  tag: 16,
  responseNonce: 32,
  requestNonce: 32,
  epoch: 16,
  exported: 32,
  frameLength: 4,
} as const

/** Bytes that framing adds to the content of a frame. */
export const frameOverheadBytes = SIZES.frameLength + SIZES.tag

export const LABELS = {
  request: utf8('ehbp request'),
  response: utf8('ehbp response'),
  key: utf8('key'),
  nonce: utf8('nonce'),
  /** Labels of this project's own sealed headers and sessions. */
  headersKey: utf8('strongroom headers key'),
  headersNonce: utf8('strongroom headers nonce'),
  session: utf8('strongroom session'),
  requestKey: utf8('strongroom request key'),
  requestNonce: utf8('strongroom request nonce'),
  requestExport: utf8('strongroom request export'),
} as const
