// POST /v1/messages/count_tokens: an estimate of the tokens of a request's prompt, by the same rule as the estimates of
// metering. Asks no upstream, and costs nothing. Effects: those of the request.

import { NO_TOKENS } from '../metering/account.ts'
import { readSource } from '../openai/request.ts'
import { smallBytesMax } from './bodies/large-bodies.ts'
import { countPrompt } from './bodies/read-body.ts'
import { type CompletionDeps, createMeteredHandler, type MeteredDeps, type MeteredHandler } from './completion.ts'
import { requireModel } from './models.ts'
import { jsonResponse } from './responses.ts'

/** The body is that of a message; `max_tokens` may be left out. */
export function createCountHandler(deps: MeteredDeps & Pick<CompletionDeps, 'models'>): MeteredHandler<'count_tokens'> {
  return createMeteredHandler(deps, async ({ request: { signal }, headers, account, caller }, body) => {
    const { model, tokens } =
      body.length > smallBytesMax
        ? await deps.largeBodies.countPrompt({ body, owner: caller.organizationId, signal, hasLabels: false })
        : countPrompt(readSource(body))
    account.model = requireModel(deps.models, { rules: caller.rules, name: model, use: 'completions' })
    const end = { outcome: 'completed', tokens: NO_TOKENS, tokensSource: 'estimated' } as const
    await account.close({ ...end, status: 200, errorCode: null })
    return jsonResponse({ input_tokens: tokens }, 200, headers)
  })
}
