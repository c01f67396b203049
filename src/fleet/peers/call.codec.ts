// Identifies the calling host of the fleet, in the field Strongroom-Peer of a request to another host. Pure.
//
// The signature covers both hosts, method, path, service, client, caller, time, and a number that is used once. TLS
// protects the rest of the request; its server has presented the key that the directory lists for it.

import { fromBase64Url, toBase64Url, utf8 } from '../../base/bytes.ts'
import { type ForwardedPrincipal, parsePrincipal, principalText } from '../../contract/http/forwarded-principal.ts'
import type { PeerService } from './peers.ts'

export const peerField = 'strongroom-peer'
/** In a response of the listener itself to a host of the fleet: why it rejected the call. */
export const refusalField = 'strongroom-peer-refusal'

/** `alive`: checks whether the host is reachable and accepts the caller. */
export type CalledService = PeerService | 'alive'

export type Call = {
  readonly from: string
  readonly to: string
  readonly service: CalledService
  readonly client: string
  /** The authenticated caller; null for a caller without credentials, or the calling host itself. */
  readonly principal: ForwardedPrincipal | null
  /** Time of the caller's wall clock. */
  readonly atMs: number
  /** 16 bytes in base64url. */
  readonly nonce: string
}

export type SignedCall = Call & { readonly signature: Uint8Array }

/** The request line as sent. */
export type CalledRequest = { readonly method: string; readonly target: string }

export type Refusal = 'clock' | 'replay' | 'busy' | 'off'

/** Returns the bytes to sign. No part contains a line break. */
export function signedBytes(call: Call, { method, target }: CalledRequest): Uint8Array {
  const { from, to, service, client, principal, atMs, nonce } = call
  const who = principalText(principal)
  return utf8(['strongroom peer call v2', from, to, service, client, who, atMs, nonce, method, target].join('\n'))
}

export function encodeCall({ from, to, service, client, principal, atMs, nonce, signature }: SignedCall): string {
  return ['v2', from, to, service, client, principalText(principal), atMs, nonce, toBase64Url(signature)].join(' ')
}

const FIELD =
  /^v2 ([0-9a-zA-Z-]{1,64}) ([0-9a-zA-Z-]{1,64}) (instances|builds|handover|alive) ([0-9a-fA-F:.%a-z]{0,64}) ([\w:-]{1,96}) ([0-9]{1,15}) ([\w-]{22}) ([\w-]{86})$/

/** Decodes the field; null if the text is malformed. */
export function decodeCall(text: string | null): SignedCall | null {
  const [, from, to, service, client, who, at, nonce, signature] = FIELD.exec(text ?? '') ?? []
  const bytes = fromBase64Url(signature ?? '')
  if (from === undefined || to === undefined || client === undefined || nonce === undefined) return null
  const principal = parsePrincipal(who ?? '')
  if (bytes?.length !== 64 || !isService(service) || principal === undefined) return null
  return { from, to, service, client, principal, atMs: Number(at), nonce, signature: bytes }
}

/** Returns a client's address in a form that fits the field; '' for any other text. */
export function clientText(address: string): string {
  return /^[0-9a-fA-F:.%a-z]{0,64}$/.test(address) ? address : ''
}

/** Returns path and query of a URL exactly as sent. */
export function targetOf(url: string): string {
  const origin = /^https?:\/\/[^/?#]*/.exec(url)?.[0] ?? ''
  const target = url.slice(origin.length).split('#', 1)[0] ?? ''
  return target.startsWith('/') ? target : `/${target}`
}

function isService(text: string | undefined): text is CalledService {
  return text === 'instances' || text === 'builds' || text === 'handover' || text === 'alive'
}
