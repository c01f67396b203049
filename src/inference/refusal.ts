// Why an engine refuses a request, in the gateway's own words. Pure.
//
// Engines quote prompts in their errors, and llama-server quotes answers that it cannot parse. So a client gets a
// sentence of the table, with at most whole numbers added. The log, which the host of a VM reads, gets the row's name,
// a type, code and field from fixed lists, and lengths.

import { Fault } from '../base/fault.ts'
import { BusyFault, UpstreamFault } from './failure.ts'
import { isObject, type JsonObject } from './json-text.ts'

type RefusalRow = {
  /** Searched for in the engine's message. */
  readonly pattern: RegExp
  /** Statuses to which the row applies; default: all. */
  readonly statusMin?: number
  /** Default: Fault invalid_request. */
  readonly as?: 'invalid_request' | 'context_length_exceeded' | 'out_of_memory' | 'busy'
  readonly fixedBy: 'client' | 'operator'
  readonly message: string
}

/** Known reasons. The first row whose pattern matches applies. */
export const REFUSALS = {
  /** vLLM 0.6 to 0.14, SGLang 0.4 and 0.5, llama-server since b3000. */
  context_too_long: {
    pattern:
      /maximum context length|longer than the (?:model's context|maximum model) length|exceeds? the available context size|context size has been exceeded/i,
    as: 'context_length_exceeded',
    fixedBy: 'client',
    message: "The prompt plus max_tokens exceeds the model's context. Shorten the prompt or lower max_tokens.",
  },
  /** vLLM 0.6 to 0.14 and compatible servers, started without their two options for tools. */
  tools_not_enabled: {
    pattern:
      /tool choice requires --|requires --(?:enable-auto-tool-choice|tool-call-parser|jinja)|tools param requires --jinja/i,
    fixedBy: 'operator',
    message: 'Tools are not enabled for this model. Ask the operator to enable them, or remove tools.',
  },
  /** vLLM ("is not a multimodal model", "At most 0 image(s)"), llama-server ("image input is not supported"). */
  content_not_taken: {
    pattern:
      /not a multimodal model|at most \d+ (?:image|audio|video)|(?:image|audio|video|multimodal) inputs? (?:is|are) not supported|provide the mmproj/i,
    fixedBy: 'client',
    message: 'This model does not accept these image, audio or video parts, or not this many. Remove some or all.',
  },
  /** vLLM (xgrammar, guidance, outlines), SGLang ("Failed to compile"), llama-server ("failed to parse grammar"). */
  schema_not_taken: {
    pattern:
      /failed to (?:parse|compile|initialize) (?:the )?(?:grammar|samplers|json[ _]schema|regex)|(?:invalid|unsupported) (?:grammar|json[ _]schema)|grammar (?:error|is not)|json schema conversion failed|features? (?:that are )?not supported by xgrammar/i,
    fixedBy: 'client',
    message: 'The engine does not support the schema of response_format or a tool. Simplify it.',
  },
  /** Jinja of vLLM, SGLang (400) and llama-server (500). */
  chat_template: {
    pattern:
      /jinja|chat[ _-]?template|raise_exception|conversation roles must alternate|system message must be|while executing \w+ at line|is not callable: null/i,
    fixedBy: 'operator',
    message: "The model's chat template failed on these messages. Reorder them, or contact the operator.",
  },
  /** llama-server ("Only one completion choice is allowed"), vLLM with temperature 0. */
  choices_not_taken: {
    pattern: /only one completion choice is allowed|^n must be 1\b/i,
    fixedBy: 'client',
    message: 'This model returns one choice for requests of this kind. Leave out n.',
  },
  /** llama-server, for tools in a stream. */
  logprobs_not_taken: {
    pattern: /^logprobs is not supported/i,
    fixedBy: 'client',
    message: 'This model returns no log probabilities with tools in a stream. Leave out logprobs, tools or stream.',
  },
  /** PyTorch of vLLM and SGLang, GGML of llama-server. The message of a 400 may quote such words. */
  out_of_memory: {
    pattern:
      /out of memory|outofmemory|failed to allocate|cudamalloc failed|kv cache is full|failed to find free space/i,
    statusMin: 500,
    as: 'out_of_memory',
    fixedBy: 'operator',
    message: '',
  },
  /** llama-server answers 503 until its model is loaded. */
  model_loading: {
    pattern: /loading model|model is (?:still )?loading/i,
    statusMin: 500,
    as: 'busy',
    fixedBy: 'operator',
    message: 'The model is still loading.',
  },
} as const satisfies Record<string, RefusalRow>

type RefusalName = keyof typeof REFUSALS
const ROWS = Object.entries(REFUSALS) as [RefusalName, RefusalRow][]

/** Longest part of a message that is searched. */
const searchedCharsMax = 8_192
/**
 * The same for a failure of the engine. Engines begin with the reason and may then quote the client's text, in which a
 * match would turn the failure into a refusal, without a second upstream.
 */
const failureCharsMax = 512
/** A model takes minutes to load. */
const loadingRetryS = 10

/** Types of errors that name a kind; others may be arbitrary text. */
const TYPES: readonly unknown[] = [
  ...['BadRequestError', 'NotFoundError', 'InternalServerError', 'UnprocessableEntityError', 'ValueError'],
  ...['invalid_request_error', 'exceed_context_size_error', 'not_supported_error', 'server_error'],
  ...['unavailable_error', 'not_found_error', 'permission_error', 'authentication_error'],
]

/** Codes of errors that name a kind. */
const CODES: readonly unknown[] = [
  ...['context_length_exceeded', 'invalid_request_error', 'invalid_value', 'unsupported_parameter'],
  ...['unsupported_value', 'missing_required_parameter', 'model_not_found', 'rate_limit_exceeded', 'server_error'],
]
/** Fields of requests that engines name. The rest of the path may contain names chosen by the client. */
const PARAMS: readonly unknown[] = [
  ...['messages', 'prompt', 'input', 'tools', 'tool_choice', 'response_format', 'structured_outputs', 'n', 'stop'],
  ...['max_tokens', 'max_completion_tokens', 'temperature', 'top_p', 'top_k', 'logprobs', 'top_logprobs'],
  ...['reasoning_effort', 'chat_template_kwargs', 'model', 'stream', 'stream_options', 'logit_bias', 'seed'],
]

/** Safe for the log. The cause of the Fault for a refusal. */
export class EngineRefusal {
  readonly reason: RefusalName | 'unknown'
  readonly fixedBy: RefusalRow['fixedBy'] | null
  /** Status of the engine's response. */
  readonly status: number
  readonly type: string | null
  readonly code: string | number | null
  /** First name in the path of a field. */
  readonly param: string | null
  /** Length of the engine's message. */
  readonly chars: number

  constructor(
    reason: RefusalName | null,
    { type, code, param }: JsonObject,
    sizes: { readonly status: number; readonly chars: number },
  ) {
    this.reason = reason ?? 'unknown'
    this.fixedBy = reason === null ? null : REFUSALS[reason].fixedBy
    this.status = sizes.status
    this.type = TYPES.includes(type) ? String(type) : null
    this.code = isStatus(code) ? code : CODES.includes(code) ? String(code) : null
    const [field] = typeof param === 'string' ? param.split(/[.[]/, 1) : []
    this.param = PARAMS.includes(field) ? String(field) : null
    this.chars = sizes.chars
  }
}

function isStatus(code: unknown): code is number {
  return typeof code === 'number' && Number.isInteger(code) && code >= 100 && code < 600
}

/** Returns the refusal; null for a failure that is not an engine's refusal. */
export function refusalIn(error: unknown): EngineRefusal | null {
  return error instanceof Fault && error.cause instanceof EngineRefusal ? error.cause : null
}

/** Returns the fault for a refusal: UpstreamFault, BusyFault, or Fault context_length_exceeded or invalid_request. */
export function refusalFault(status: number, body: string): Fault {
  const error = errorIn(body)
  const message = typeof error.message === 'string' ? error.message : body
  const name = isTooLong(error) ? 'context_too_long' : nameOf(message, status)
  const cause = new EngineRefusal(name, error, { status, chars: message.length })
  if (name !== null) return faultOf(name, error, cause)
  if (status >= 500) return new UpstreamFault('status', null, cause)
  const words = 'The model rejected this request; compare its fields with the documentation.'
  return new Fault('invalid_request', words, { cause })
}

/** Returns the Fault for an error that an engine sends instead of a chunk or a completion. */
export function reportedFault(document: JsonObject): Fault {
  const error = errorOf(document)
  const text = typeof error.message === 'string' ? error.message : ''
  const name = isTooLong(error) ? 'context_too_long' : nameOf(text, 500)
  const cause = new EngineRefusal(name, error, { status: 200, chars: text.length })
  return name === null ? new UpstreamFault('reported_error', null, cause) : faultOf(name, error, cause)
}

function nameOf(message: string, status: number): RefusalName | null {
  const searched = message.slice(0, status < 500 ? searchedCharsMax : failureCharsMax)
  const row = ROWS.find(([, { pattern, statusMin = 0 }]) => status >= statusMin && pattern.test(searched))
  return row?.[0] ?? null
}

function faultOf(name: RefusalName, error: JsonObject, cause: EngineRefusal): Fault {
  const { as = 'invalid_request', message }: RefusalRow = REFUSALS[name]
  if (as === 'out_of_memory') return new UpstreamFault(as, null, cause)
  if (as === 'busy') return new BusyFault(message, loadingRetryS, cause)
  return new Fault(as, message + (as === 'context_length_exceeded' ? numbersOf(error) : ''), { cause })
}

/** Returns llama-server's own numbers as a sentence; empty if there are none. */
function numbersOf({ n_prompt_tokens, n_ctx }: JsonObject): string {
  const isCount = (value: unknown) => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
  if (!isCount(n_prompt_tokens) || !isCount(n_ctx)) return ''
  return ` The prompt has ${n_prompt_tokens} tokens, the context ${n_ctx}.`
}

function errorIn(body: string): JsonObject {
  try {
    const value: unknown = JSON.parse(body)
    return isObject(value) ? errorOf(value) : {}
  } catch {
    return {}
  }
}

function errorOf(document: JsonObject): JsonObject {
  const { error } = document
  if (isObject(error)) return error
  return typeof error === 'string' ? { message: error } : document
}

function isTooLong({ code, type }: JsonObject): boolean {
  return code === 'context_length_exceeded' || type === 'exceed_context_size_error'
}
