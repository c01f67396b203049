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
  /** Fault invalid_request, with the client's field. `names`: filled where it is given; only errors need it. */
  readonly translate: (body: JsonObject, names: FieldNames | null, earlier?: Earlier) => DialectRequest
  /** How the response to a translated request is written. */
  readonly respond: (traits: ResponseTraits | null, head: ResponseHead) => DialectResponse
  /** Names that do not depend on the request. */
  readonly names: Readonly<Record<string, string>>
  /** An error as clients of this API read it; the gateway's own fields are among it. */
  readonly errorDocument: (error: GatewayError) => JsonObject
  /** Another header than Authorization that may carry the key; null for none. */
  readonly keyHeader: string | null
  /** Another header than X-Request-ID that carries the request's id; null for none. */
  readonly idHeader: string | null
}

export type DialectRequest = {
  /** Input of the parser of chat requests, which validates it. */
  readonly chat: JsonObject
  /** Fields of the client's that have no effect. */
  readonly ignored: readonly string[]
  /** Null for an API whose responses repeat nothing of their request. */
  readonly traits: ResponseTraits | null
}

/** How a call of a function is given to the client: as the tool that the function stands for. */
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

/** The traits of a request that its response needs. Data alone, because another thread may have read the request. */
export type ResponseTraits = {
  readonly echo: RequestEcho
  readonly tools: ToolForms
  /** Whether the response is a summary for the client to keep. */
  readonly isCompaction: boolean
  /** Whether the client replays reasoning as `encrypted_content`. */
  readonly includesReasoning: boolean
  /** Id of the response before it. */
  readonly previous: string | null
  /** The request's own items, or the JSON of them; null for text that is too long to be kept. */
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
  /** Hexadecimal, of this request alone. */
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
  /** JSON. `completion`: a checked one, as a client of chat completions gets it. UpstreamFault. */
  readonly whole: (completion: JsonObject, usage: Usage) => string
  readonly openStream: (options: DialectStreamOptions) => DialectStream
}

export type DialectStreamOptions = {
  /** Bound of text that is kept because the end of the stream repeats it. */
  readonly keptCharsMax: number
  /** Pads the pieces of text; null for none. */
  readonly obfuscate: Obfuscate | null
}

/** Converts one stream for the client. Its output is text of an event stream. */
export type DialectStream = {
  /** The events of one checked chunk, given as its JSON. UpstreamFault too_large. */
  readonly push: (chunk: string) => string
  /** The events after the last chunk, but for `end`. */
  readonly finish: (usage: Usage) => string
  /** Returns a keep-alive; the first call may return the first events. */
  readonly ping: () => string
  /** The last event of a stream that is whole. */
  readonly end: string
  /** The events that end a stream that broke. */
  readonly fail: (error: GatewayError) => string
}
