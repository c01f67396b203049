// The body of a request, parsed and checked: here for a body that is small, in a thread for one that is large
// (large-bodies.ts). Pure. Fault invalid_request.

import { parseChat } from '../../dialects/chat.ts'
import { DIALECTS, hasDialect } from '../../dialects/dialects.ts'
import { messagesDialect } from '../../dialects/messages/dialect.ts'
import { parseDialect } from '../../dialects/request.ts'
import { type EarlierIds, idsIn, namesEarlier } from '../../dialects/responses/earlier.ts'
import { estimateTokens, partTokens } from '../../metering/account.ts'
import { NO_LABELS, type UsageLabels, usageLabels } from '../../metering/labels.ts'
import type { CutValues } from '../../openai/cut-source.ts'
import type { Earlier, ResponseTraits } from '../../openai/dialect.ts'
import { type EmbeddingsRequest, parseEmbeddingsSource } from '../../openai/embeddings-request.ts'
import { joinMessages } from '../../openai/engines/joined-messages.ts'
import { type GatewayRequest, parseSource, type RequestSource } from '../../openai/request.ts'
import type { Operation } from '../../types.ts'

/** Completions of every API. */
export type AskedCompletion = Exclude<Operation, 'embeddings' | 'count_tokens'>

/** A body that goes to an upstream. */
type ReadBody = {
  /** Source of the upstream's request: the client's own body or its translation. */
  readonly source: RequestSource
  /** Long values of the source; null for a source that is whole. */
  readonly values: CutValues | null
  readonly labels: UsageLabels
  /** With all that was cut out: a document may have as many tokens, and what an upstream counts is to be believed. */
  readonly bodyBytes: number
  readonly promptEstimate: number
}

export type ReadCompletion = ReadBody & {
  readonly request: GatewayRequest
  /** Names of parts that the translation has left out. */
  readonly ignored: readonly string[]
  readonly traits: ResponseTraits | null
}

export type ReadEmbeddings = ReadBody & { readonly request: EmbeddingsRequest }
export type CountedPrompt = { readonly model: string; readonly tokens: number }

/** Ids of earlier responses and items that the body names; null for none. */
export function earlierIdsOf(operation: AskedCompletion, { body }: RequestSource): EarlierIds | null {
  const ids = operation === 'responses' || operation === 'compact' ? idsIn(body) : null
  return ids !== null && namesEarlier(ids) ? ids : null
}

export type ReadOptions = {
  /** Items of earlier responses that the request names; null for none. */
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
    : {
        ...(operation === 'chat' ? parseChat(given) : { ...parseSource(operation, given), ignored: NONE }),
        traits: null,
      }
  const labels = hasLabels ? usageLabels(operation, given.body) : NO_LABELS
  const joined = request.operation === 'chat' ? joinMessages(source) : null
  return { request, source: joined ?? source, values: null, labels, ...sizeOf(source), ignored, traits }
}

const NONE: readonly string[] = []

export function readEmbeddings(given: RequestSource, { hasLabels }: Pick<ReadOptions, 'hasLabels'>): ReadEmbeddings {
  const { request, source } = parseEmbeddingsSource(given)
  const labels = hasLabels ? usageLabels('embeddings', source.body) : NO_LABELS
  return { request, source, values: null, labels, ...sizeOf(source) }
}

function sizeOf({ sizeBytes }: RequestSource): Pick<ReadBody, 'bodyBytes' | 'promptEstimate'> {
  return { bodyBytes: sizeBytes, promptEstimate: estimateTokens(sizeBytes) }
}

/** The prompt of a body of the Messages API; `max_tokens` may be left out. */
export function countPrompt(source: RequestSource): CountedPrompt {
  const body = { ...source.body, max_tokens: source.body.max_tokens ?? 1 }
  const asked = parseDialect(messagesDialect, { ...source, body })
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
