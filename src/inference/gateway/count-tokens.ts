// POST /v1/messages/count_tokens and /v1/responses/input_tokens: an estimate of the tokens of a prompt, by the rule
// of metering. Calls no upstream, and costs nothing. Effects: those of the request.

import { NO_TOKENS } from '../metering/account.ts'
import { readSource } from '../openai/request.ts'
import type { CountOperation } from '../types.ts'
import { smallBytesMax } from './bodies/large-bodies.ts'
import { type CountedPrompt, countPrompt, earlierIdsOf } from './bodies/read-body.ts'
import {
  type AdmittedRequest,
  type CompletionDeps,
  createMeteredHandler,
  type MeteredDeps,
  type MeteredHandler,
} from './completion.ts'
import { findEarlier } from './earlier-items.ts'
import { requireModel } from './models.ts'
import { jsonResponse } from './responses.ts'

type CountDeps = MeteredDeps & Pick<CompletionDeps, 'models' | 'responses'>

/** Handles the body of a message or a response. */
export function createCountHandler(deps: CountDeps): MeteredHandler<CountOperation> {
  return createMeteredHandler(deps, async (admitted, body) => {
    const { operation, headers, account, caller } = admitted
    const { model, tokens } = await count(deps, admitted, body)
    account.model = requireModel(deps.models, { rules: caller.rules, name: model, use: 'completions' })
    const end = { outcome: 'completed', tokens: NO_TOKENS, tokensSource: 'estimated' } as const
    await account.close({ ...end, status: 200, errorCode: null })
    const object = operation === 'input_tokens' ? { object: 'response.input_tokens' } : {}
    return jsonResponse({ ...object, input_tokens: tokens }, 200, headers)
  })
}

/** A request that builds on earlier responses, which may be large, is counted in the thread. */
async function count(
  deps: CountDeps,
  admitted: AdmittedRequest<CountOperation>,
  body: Uint8Array,
): Promise<CountedPrompt> {
  const { operation, request, caller } = admitted
  const source = body.length > smallBytesMax ? null : readSource(body)
  if (source !== null && earlierIdsOf(operation, source) === null) return countPrompt(operation, source)
  return await deps.largeBodies.countPrompt({
    ...{ body, operation, earlier: null, hasLabels: false },
    owner: caller.organizationId,
    signal: request.signal,
    earlierOf: async ids => (await findEarlier(deps, admitted, ids)).earlier,
  })
}
