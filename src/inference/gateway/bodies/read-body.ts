// The body of a request, parsed and checked: a small body in this thread, a large one in a separate thread
// (large-bodies.ts). Pure. Fault invalid_request.

import { parseChat } from '../../dialects/chat.ts'
import { COUNTED, DIALECTS, hasDialect } from '../../dialects/dialects.ts'
import { parseDialect } from '../../dialects/request.ts'
import { type EarlierIds, idsIn, namesEarlier } from '../../dialects/responses/earlier.ts'
import { estimateTokens, partTokens } from '../../metering/account.ts'
import { type EndUser, endUserOf, NO_LABELS, type UsageLabels, usageLabels } from '../../metering/labels.ts'
import type { CutValues } from '../../openai/cut-source.ts'
import type { Earlier, ResponseTraits } from '../../openai/dialect.ts'
import { joinMessages } from '../../openai/engines/joined-messages.ts'
import { type PooledRequest, parseEmbeddingsSource, parseRerankSource } from '../../openai/pooled/request.ts'
import { type GatewayRequest, parseSource, type RequestSource } from '../../openai/request.ts'
import type { CountOperation, Operation, PooledOperation } from '../../types.ts'

/** Completions of every API. */
export type AskedCompletion = Exclude<Operation, CountOperation | PooledOperation>

/** A body that goes to an upstream. */
type ReadBody = {
  /** Source of the upstream's request: the client's own body or its translation. */
  readonly source: RequestSource
  /** Long values of the source; null if the source is complete. */
  readonly values: CutValues | null
  readonly labels: UsageLabels
  /** See `RequestAccount`. */
  readonly endUser: EndUser | null
  /** Size including removed parts: a document may have as many tokens, and the upstream's count must be plausible. */
  readonly bodyBytes: number
  readonly promptEstimate: number
}

export type ReadCompletion = ReadBody & {
  readonly request: GatewayRequest
  /** Names of parts that the translation has left out. */
  readonly ignored: readonly string[]
  readonly traits: ResponseTraits | null
}

export type ReadPooled = ReadBody & { readonly request: PooledRequest }
export type CountedPrompt = { readonly model: string; readonly tokens: number }

/** Returns the ids of earlier responses and items that the body names; null if it names none. */
export function earlierIdsOf(operation: Operation, { body }: RequestSource): EarlierIds | null {
  const ids = BUILDING.has(operation) ? idsIn(body) : null
  return ids !== null && namesEarlier(ids) ? ids : null
}

const BUILDING: ReadonlySet<Operation> = new Set(['responses', 'compact', 'input_tokens'])

export type ReadOptions = {
  /** Items of earlier responses that the request names; null if it names none. */
  readonly earlier: Earlier | null
  readonly hasLabels: boolean
}

export function readCompletion(
  operation: AskedCompletion,
  given: RequestSource,
  { earlier, hasLabels }: ReadOptions,
): ReadCompletion {
  const { request, source, ignored, traits } = hasDialect(operation)
    ? parseDialect(DIALECTS[operation], given, earlier ?? undefined)
    : operation === 'chat'
      ? parseChat(given)
      : { ...parseSource(operation, given), ignored: NONE, traits: null }
  const labels = hasLabels ? usageLabels(operation, given.body) : NO_LABELS
  const joined = request.operation === 'chat' ? joinMessages(source) : null
  const endUser = endUserOf(operation, given.body)
  return { request, source: joined ?? source, values: null, labels, endUser, ...sizeOf(source), ignored, traits }
}

const NONE: readonly string[] = []

export function readPooled(
  operation: PooledOperation,
  source: RequestSource,
  { hasLabels }: Pick<ReadOptions, 'hasLabels'>,
): ReadPooled {
  const labels = hasLabels ? usageLabels(operation, source.body) : NO_LABELS
  const { bodyBytes, promptEstimate } = sizeOf(source)
  const common = { source, values: null, labels, endUser: endUserOf(operation, source.body), bodyBytes }
  if (operation === 'embeddings') {
    const { request } = parseEmbeddingsSource(source)
    return { ...common, request, promptEstimate }
  }
  const request = parseRerankSource(source)
  const repeated = estimateTokens(request.repeatedBytes)
  return { ...common, request, promptEstimate: promptEstimate + repeated }
}

function sizeOf({ sizeBytes }: RequestSource): Pick<ReadBody, 'bodyBytes' | 'promptEstimate'> {
  return { bodyBytes: sizeBytes, promptEstimate: estimateTokens(sizeBytes) }
}

/** Counts the prompt of a body of the Messages API, where `max_tokens` may be left out, or of the Responses API. */
export function countPrompt(
  operation: CountOperation,
  source: RequestSource,
  earlier: Earlier | null = null,
): CountedPrompt {
  const isMessage = operation === 'count_tokens'
  const body = isMessage ? { ...source.body, max_tokens: source.body.max_tokens ?? 1 } : source.body
  const asked = parseDialect(COUNTED[operation], { ...source, body }, earlier ?? undefined)
  const { messages, tools } = asked.source.body
  const json = JSON.stringify(tools === undefined ? { messages } : { messages, tools })
  let parts = 0
  const text = json.replace(dataUrl, () => {
    parts += 1
    return '""'
  })
  return { model: asked.request.model, tokens: estimateTokens(Buffer.byteLength(text)) + parts * partTokens }
}

const dataUrl = /"data:[^"\\]*"/g
