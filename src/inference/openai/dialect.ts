// Interface of an API that chat completions serve: translates its requests to chat, and checked completions back. Types
// only.

import type { GatewayError } from '../../contract/http/inference.ts'
import type { JsonObject } from '../json-text.ts'
import type { Obfuscate } from './obfuscation.ts'
import type { Usage } from './usage.ts'

/** Maps fields of the chat request to the client's: `messages[0]` to `input[2]`. Absent fields keep their name. */
export type FieldNames = Map<string, string>

/** Items that a request takes from earlier ones. */
export type Earlier = {
  /** The items before its own, in order. */
  readonly items: readonly JsonObject[]
  /** Items that it names, by their id. */
  readonly named: ReadonlyMap<string, JsonObject>
}

export type Dialect = {
  /**
   * Translates a request. Throws Fault invalid_request with the client's field. `names` is filled unless null; only
   * errors need it.
   */
  readonly translate: (body: JsonObject, names: FieldNames | null, earlier?: Earlier) => DialectRequest
  /** Returns how to write the response to a translated request. */
  readonly respond: (traits: ResponseTraits | null, head: ResponseHead) => DialectResponse
  /** Names that do not depend on the request. */
  readonly names: Readonly<Record<string, string>>
  /** Builds an error as clients of this API read it, including the gateway's own fields. */
  readonly errorDocument: (error: GatewayError) => JsonObject
  /** Header other than Authorization that may carry the key; null if there is none. */
  readonly keyHeader: string | null
  /** Header other than X-Request-ID that carries the request's id; null if there is none. */
  readonly idHeader: string | null
}

export type DialectRequest = {
  /** Input of the parser of chat requests, which validates it. */
  readonly chat: JsonObject
  /** Fields of the client that have no effect. */
  readonly ignored: readonly string[]
  /** Null for an API whose responses repeat nothing of their request. */
  readonly traits: ResponseTraits | null
}

/** Form in which the client gets a call of a function: as a call of the tool that the function represents. */
export type CallForm =
  | { readonly kind: 'call' | 'custom'; readonly namespace: string | null; readonly name: string }
  | { readonly kind: ClientCallKind }

/** Items of the Responses API that call a tool which the client runs. */
export type ClientCallKind =
  | 'tool_search_call'
  | 'local_shell_call'
  | 'shell_call'
  | 'apply_patch_call'
  | 'computer_call'

/** Call forms by the engine's name of the function. Plain functions have none. */
export type ToolForms = ReadonlyMap<string, CallForm>

/** The traits of a request that its response needs. Only data, because another thread may have read the request. */
export type ResponseTraits = {
  readonly echo: RequestEcho
  readonly tools: ToolForms
  /** Whether the response is a summary for the client to keep. */
  readonly isCompaction: boolean
  /** Whether the client replays reasoning as `encrypted_content`. */
  readonly includesReasoning: boolean
  /** Id of the response before it. */
  readonly previous: string | null
  /** The request's own items, or their JSON; null for text that is too long to be kept. */
  readonly input: { readonly items: unknown } | { readonly text: string | null }
}

/**
 * Fields of the request that the response repeats, without instructions and tools, which a stream would have to keep.
 */
export type RequestEcho = {
  readonly format: JsonObject
  readonly max_output_tokens: unknown
  readonly metadata: JsonObject
  readonly parallel_tool_calls: boolean
  readonly previous_response_id: unknown
  readonly reasoning: { readonly effort: unknown; readonly summary: null }
  readonly store: boolean
  readonly temperature: unknown
  readonly tool_choice: unknown
  readonly top_logprobs: unknown
  readonly top_p: unknown
}

export type ResponseHead = {
  /** Hexadecimal, unique to this request. */
  readonly id: string
  readonly createdS: number
  readonly model: string
  /** Keeps a response for later requests; null if the gateway keeps none. */
  readonly keep: ((kept: KeptItems) => void) | null
}

/** `previous`: id of the response before it. */
export type KeptItems = {
  readonly previous: string | null
  /** JSON of the request's own items; null if they are too long to be kept. */
  readonly inputText: string | null
  /** The response as the client gets it. */
  readonly response: KeptResponse
}

export type KeptResponse = JsonObject & { readonly output: readonly JsonObject[] }

export type DialectResponse = {
  /**
   * Returns the response as JSON. `completion`: a checked one, as a client of chat completions gets it. Throws
   * UpstreamFault.
   */
  readonly whole: (completion: JsonObject, usage: Usage) => string
  readonly openStream: (options: DialectStreamOptions) => DialectStream
}

export type DialectStreamOptions = {
  /** Bound of the text that is kept because the end of the stream repeats it. */
  readonly keptCharsMax: number
  /** Pads the pieces of text; null if they are not padded. */
  readonly obfuscate: Obfuscate | null
}

/** Converts one stream for the client. Its output is text of an event stream. */
export type DialectStream = {
  /** Returns the events of one checked chunk, given as JSON. Throws UpstreamFault too_large. */
  readonly push: (chunk: string) => string
  /** Returns the events after the last chunk, except `end`. */
  readonly finish: (usage: Usage) => string
  /** Returns a keep-alive; the first call may return the first events. */
  readonly ping: () => string
  /** The last event of a complete stream. */
  readonly end: string
  /** Returns the events that end a broken stream. */
  readonly fail: (error: GatewayError) => string
}
