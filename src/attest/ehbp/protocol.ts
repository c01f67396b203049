// EHBP (encrypted HTTP body protocol) 0.1, as the npm package `ehbp` speaks it: names, sizes and labels, each once.
// Pure. Specification: SPEC.md of github.com/tinfoilsh/encrypted-http-body-protocol. HPKE: RFC 9180.
//
// A body is a row of frames: a u32be length, then that many bytes of AES-256-GCM ciphertext with its tag; a length of
// zero is passed over. Request: the frames of one HPKE context in base mode. Response: a key of its own out of that
// context, the request's encapsulated key and a nonce. There is no end marker: readers of a response look for the
// end of its content (whole.ts).

import { utf8 } from '../../base/bytes.ts'

export const encapsulatedKeyHeader = 'Ehbp-Encapsulated-Key'
export const responseNonceHeader = 'Ehbp-Response-Nonce'

/** Where a server has its key configuration, and of what media type it is. */
export const keyConfigPath = '/.well-known/hpke-keys'
export const keyConfigMediaType = 'application/ohttp-keys'

/** A server that cannot open a request responds with 422 and a problem document (RFC 9457) of this type. */
export const keyConfigProblem = {
  status: 422,
  mediaType: 'application/problem+json',
  type: 'urn:ietf:params:ehbp:error:key-config',
} as const

/**
 * This project's own header of a sealed response: base64url of headers that would tell what is in the body, as one more
 * AES-GCM ciphertext. Inside is a JSON object of names in lowercase and texts. Clients of others ignore it.
 */
export const sealedHeadersHeader = 'X-Strongroom-Sealed-Headers'
/** A receipt holds hashes of the bodies, by which a guess could be tried; the other names fields of the request. */
export const sealedHeaderNames = ['x-strongroom-receipt', 'x-strongroom-ignored', 'x-strongroom-epoch'] as const
/** Characters of base64url. A receipt takes about 6,700. */
export const sealedHeadersLengthMax = 12_288

/**
 * Marks a bound request (session.ts): one encapsulation for many requests, each with a nonce of its own in hexadecimal.
 * The nonce is the server's replay epoch, then 16 random bytes.
 */
export const requestNonceHeader = 'X-Strongroom-Request-Nonce'
/**
 * The server's replay epoch in hexadecimal: of evidence in the clear, of a response sealed. `staleEpoch` before it
 * refuses the request: its own epoch has ended.
 */
export const epochHeader = 'X-Strongroom-Epoch'
export const staleEpoch = 'stale '

/** HPKE's registry at IANA: HKDF-SHA256, AES-256-GCM. */
export const kdfId = 0x0001
export const aeadId = 0x0002

/** In bytes. `responseNonce`: the larger of the AEAD's key and nonce (RFC 9458 section 4.4). */
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

/** Bytes that a frame adds to its content. */
export const frameOverheadBytes = SIZES.frameLength + SIZES.tag

export const LABELS = {
  request: utf8('ehbp request'),
  response: utf8('ehbp response'),
  key: utf8('key'),
  nonce: utf8('nonce'),
  /** Key of this project's sealed headers. */
  headersKey: utf8('strongroom headers key'),
  headersNonce: utf8('strongroom headers nonce'),
  session: utf8('strongroom session'),
  requestKey: utf8('strongroom request key'),
  requestNonce: utf8('strongroom request nonce'),
  requestExport: utf8('strongroom request export'),
} as const
