// How a host says which host of the fleet it is, in the field Strongroom-Peer of a request to another one. Pure.
//
// The signature covers both hosts, method, path, service, client and time, and a number that is used once: it is good
// for no other call, host or time. All else of the request is protected by TLS, whose server has shown the key that the
// directory has for it.

import { fromBase64Url, toBase64Url, utf8 } from '../../base/bytes.ts'
import type { PeerService } from './peers.ts'

export const peerField = 'strongroom-peer'
/** In an answer of the listener itself to a host of the fleet: why the call was refused. */
export const refusalField = 'strongroom-peer-refusal'

/** `alive`: whether the host is reached, and knows the caller. */
export type CalledService = PeerService | 'alive'

export type Call = {
  readonly from: string
  readonly to: string
  readonly service: CalledService
  readonly client: string
  /** By the caller's wall clock. */
  readonly atMs: number
  /** 16 bytes, base64url. */
  readonly nonce: string
}

export type SignedCall = Call & { readonly signature: Uint8Array }

/** The request line, as it goes over the wire. */
export type CalledRequest = { readonly method: string; readonly target: string }

export type Refusal = 'clock' | 'replay' | 'busy' | 'off'

/** The bytes to sign. No part of them holds a line break. */
export function signedBytes(call: Call, { method, target }: CalledRequest): Uint8Array {
  const { from, to, service, client, atMs, nonce } = call
  return utf8(['strongroom peer call v1', from, to, service, client, atMs, nonce, method, target].join('\n'))
}

export function encodeCall({ from, to, service, client, atMs, nonce, signature }: SignedCall): string {
  return ['v1', from, to, service, client, atMs, nonce, toBase64Url(signature)].join(' ')
}

const FIELD =
  /^v1 ([0-9a-zA-Z-]{1,64}) ([0-9a-zA-Z-]{1,64}) (instances|builds|handover|alive) ([0-9a-fA-F:.%a-z]{0,64}) ([0-9]{1,15}) ([\w-]{22}) ([\w-]{86})$/

/** Null: it is no such text. */
export function decodeCall(text: string | null): SignedCall | null {
  const [, from, to, service, client, at, nonce, signature] = FIELD.exec(text ?? '') ?? []
  const bytes = fromBase64Url(signature ?? '')
  if (from === undefined || to === undefined || client === undefined || nonce === undefined) return null
  if (bytes?.length !== 64 || !isService(service)) return null
  return { from, to, service, client, atMs: Number(at), nonce, signature: bytes }
}

/** A client's address as it can stand in the field; '' for any other text. */
export function clientText(address: string): string {
  return /^[0-9a-fA-F:.%a-z]{0,64}$/.test(address) ? address : ''
}

/** Path and query of a URL, as they were sent. */
export function targetOf(url: string): string {
  const origin = /^https?:\/\/[^/?#]*/.exec(url)?.[0] ?? ''
  const target = url.slice(origin.length).split('#', 1)[0] ?? ''
  return target.startsWith('/') ? target : `/${target}`
}

function isService(text: string | undefined): text is CalledService {
  return text === 'instances' || text === 'builds' || text === 'handover' || text === 'alive'
}
