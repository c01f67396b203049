// POST /v1/messages/count_tokens: an estimate of the tokens of a request's prompt, by the same rule as the estimates of
// metering. Asks no upstream, and costs nothing. Effects: those of the request.

import { messagesDialect } from '../dialects/messages/dialect.ts'
import { parseDialect } from '../dialects/request.ts'
import { estimateTokens, NO_TOKENS, partTokens } from '../metering/account.ts'
import { readSource } from '../openai/request.ts'
import {
  type CompletionDeps,
  createMeteredHandler,
  longTextsOf,
  type MeteredDeps,
  type MeteredHandler,
} from './completion.ts'
import { requireModel } from './models.ts'
import { jsonResponse } from './responses.ts'

const dataUrl = /"data:[^"\\]*"/g

/** The body is that of a message; `max_tokens` may be left out. */
export function createCountHandler(
  deps: MeteredDeps & Pick<CompletionDeps, 'models' | 'random'>,
): MeteredHandler<'count_tokens'> {
  return createMeteredHandler(deps, async ({ headers, account, caller }, plain) => {
    const source = readSource((await longTextsOf(deps, plain))?.bytes ?? plain)
    const body = { ...source.body, max_tokens: source.body.max_tokens ?? 1 }
    const asked = parseDialect(messagesDialect, { ...source, body })
    account.model = requireModel(deps.models, { rules: caller.rules, name: asked.request.model, use: 'completions' })
    const { messages, tools } = asked.source.body
    const count = countIn(JSON.stringify(tools === undefined ? { messages } : { messages, tools }))
    const end = { outcome: 'completed', tokens: NO_TOKENS, tokensSource: 'estimated' } as const
    await account.close({ ...end, status: 200, errorCode: null })
    return jsonResponse({ input_tokens: count }, 200, headers)
  })
}

function countIn(json: string): number {
  let parts = 0
  const text = json.replace(dataUrl, () => {
    parts += 1
    return '""'
  })
  return estimateTokens(Buffer.byteLength(text)) + parts * partTokens
}
