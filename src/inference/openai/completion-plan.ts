// Requirements on the completion of one request: its identity, tool_choice and response_format. Pure.

import { UpstreamFault } from '../failure.ts'
import { isObject } from '../json-text.ts'
import type { ContentsCheck } from '../schema-check/service.ts'
import type { DialectResponse } from './dialect.ts'
import type { Obfuscate } from './obfuscation.ts'
import type { GatewayRequest } from './request.ts'
import { mustCall } from './tools.ts'

export type CompletionPlan = {
  readonly request: GatewayRequest
  /** The gateway's own id, because an upstream's reveals which engine it is. */
  readonly id: string
  readonly createdS: number
  /** Check of a strict response_format; null if there is none. */
  readonly schema: ContentsCheck | null
  /** Pads the chunks of a stream; null if they are not padded. */
  readonly obfuscate: Obfuscate | null
  /** Converts the response to another API's form; null for OpenAI's completions. */
  readonly dialect: DialectResponse | null
}

/** How one choice ended. */
export type Ending = { readonly callCount: number; readonly finishReason: string }

/**
 * Throws UpstreamFault wrong_tool if a required call is missing. As with OpenAI, choices cut by length or filter pass.
 */
export function checkToolChoice(plan: CompletionPlan, { callCount, finishReason }: Ending): void {
  if (callCount > 0 || finishReason === 'length' || finishReason === 'content_filter') return
  if (mustCall(plan.request.toolChoice)) throw new UpstreamFault('wrong_tool')
}

/**
 * Checks response_format for a choice that ended by itself, without a refusal or calls. Throws UpstreamFault not_json.
 * For a strict schema, returns the content, which `plan.schema` must check before the choice is passed on.
 */
export function checkFormat(
  plan: CompletionPlan,
  ending: Ending & { content: string; isRefused: boolean },
): string | null {
  const { format } = plan.request
  if (format.kind === 'text' || ending.finishReason !== 'stop' || ending.callCount > 0 || ending.isRefused) return null
  if (format.kind === 'json_schema') return ending.content
  let value: unknown
  try {
    value = JSON.parse(ending.content)
  } catch {
    throw new UpstreamFault('not_json')
  }
  if (!isObject(value)) throw new UpstreamFault('not_json')
  return null
}

/**
 * Returns the reason that clients expect. Some engines report `stop` for a choice with calls, but clients expect
 * `tool_calls`.
 */
export function publicFinishReason({ callCount, finishReason }: Ending): string {
  return callCount > 0 && finishReason === 'stop' ? 'tool_calls' : finishReason
}

/** Returns the engine's id of a call. If there is none, generates one, because clients name the call by it. */
export function toolCallId(id: unknown, at: number, plan: CompletionPlan): string {
  return typeof id === 'string' && /^[\x21-\x7e]{1,256}$/.test(id) ? id : `call_${plan.id.slice(-12)}_${at}`
}
