// The guest's end of the agent wire (contract/vm/agent.ts): bytes, lines, requests and responses. Pure.

import { fromUtf8, utf8 } from '../base/bytes.ts'
import { nestsDeeper } from '../base/json.ts'
import { matches } from '../contract/check.ts'
import { type Static, type TSchema, Type } from '../contract/type.ts'
import { AgentRequest, agentLineBytesMax } from '../contract/vm/agent.ts'
import type { AgentErrorCode, AgentResponse } from '../contract/vm/agent-responses.ts'
import type { BUILD_RESPONSES } from '../contract/vm/build-agent.ts'
import type { ENCLAVE_RESPONSES } from '../contract/vm/enclave-responses.ts'

export type ReceivedLine = { kind: 'line'; text: string } | { kind: 'dropped'; reason: 'overlong' | 'not_utf8' }

/** Cuts a byte stream at LF. Keeps at most one line of `lineBytesMax`; drops a longer line. Skips empty lines. */
export class LineReader {
  readonly #line: Uint8Array
  #lengthBytes = 0
  #overlong = false

  constructor(lineBytesMax: number = agentLineBytesMax) {
    this.#line = new Uint8Array(lineBytesMax)
  }

  push(chunk: Uint8Array): ReceivedLine[] {
    const lines: ReceivedLine[] = []
    let start = 0
    while (start < chunk.length) {
      const at = chunk.indexOf(lineFeed, start)
      const end = at === -1 ? chunk.length : at
      this.#append(chunk.subarray(start, end))
      if (at !== -1) {
        const line = this.#finish()
        if (line !== null) lines.push(line)
      }
      start = end + 1
    }
    return lines
  }

  #append(piece: Uint8Array): void {
    if (this.#overlong || this.#lengthBytes + piece.length > this.#line.length) {
      this.#overlong = true
      return
    }
    this.#line.set(piece, this.#lengthBytes)
    this.#lengthBytes += piece.length
  }

  #finish(): ReceivedLine | null {
    const bytes = this.#line.subarray(0, this.#lengthBytes)
    const overlong = this.#overlong
    this.#lengthBytes = 0
    this.#overlong = false
    if (overlong) return { kind: 'dropped', reason: 'overlong' }
    if (bytes.length === 0) return null
    try {
      return { kind: 'line', text: fromUtf8(bytes) }
    } catch {
      return { kind: 'dropped', reason: 'not_utf8' }
    }
  }
}

const lineFeed = 0x0a

/** A request, or the id under which to refuse it, or null: no id to respond to. */
export type ParsedRequest<Request = AgentRequest> =
  | { kind: 'request'; request: Request }
  | { kind: 'refused'; id: string; message: string }
  | null

/** Strict: unknown ops and fields are refused. */
export const parseRequest = requestParser([])

/** Like parseRequest, with the requests of one kind of VM too. Reads the text once: a hostile line takes its time. */
export function requestParser<T extends TSchema>(
  requests: readonly T[],
): (text: string) => ParsedRequest<AgentRequest | Static<T>> {
  const schema = Type.Union([AgentRequest, ...requests])
  return text => {
    const value = jsonOf(text)
    if (matches(schema, value)) return { kind: 'request', request: value as AgentRequest | Static<T> }
    const id = idOf(value)
    return id === null ? null : { kind: 'refused', id, message: 'not a request of this wire' }
  }
}

/** Responses of a VM of any kind. */
export type GuestResponse =
  | AgentResponse
  | Static<(typeof BUILD_RESPONSES)[number]>
  | Static<(typeof ENCLAVE_RESPONSES)[number]>

/** The deepest message has less. */
const depthMax = 16

/** The value of a JSON text; undefined: not JSON, or nested too deep. */
export function jsonOf(text: string): unknown {
  try {
    return nestsDeeper(text, depthMax) ? undefined : JSON.parse(text)
  } catch {
    return undefined
  }
}

function idOf(value: unknown): string | null {
  if (typeof value !== 'object' || value === null) return null
  const id: unknown = Reflect.get(value, 'id')
  return typeof id === 'string' && id.length >= 1 && id.length <= 64 ? id : null
}

/** One response as bytes with its LF. */
export function encodeResponse(response: GuestResponse): Uint8Array {
  return utf8(`${JSON.stringify(response)}\n`)
}

/** The reason why a request was not carried out. */
export type Refusal = { readonly ok: false; readonly code: AgentErrorCode; readonly message: string }

/** Success without further data. */
export const ok = { ok: true } as const

/** `message` goes to the host: it must not contain anything of a claim. */
export function refuse(code: AgentErrorCode, message: string): Refusal {
  return { ok: false, code, message: message.slice(0, messageCharsMax) }
}

/** Limit of `message` in AgentResponse. */
const messageCharsMax = 1024
