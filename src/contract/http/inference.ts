// The parts of the inference gateway's wire that are ours (contract 2.4, 4.2, 7.2): errors, models, health. Pure.
// Chat and completion bodies are OpenAI's; src/inference/openai checks them.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { KeyMaker } from '../key-rules.ts'
import { type Static, Type } from '../type.ts'
import { GATEWAY_ERROR_CODES, GATEWAY_ERROR_TYPES } from './gateway-error.ts'
import { UsageSums, usageRows } from './usage-rows.schema.ts'

/**
 * Body of every error response. Unlike service A's it has no envelope and no request id. `code` and `message` are the
 * contract's (7.2).
 */
export const GatewayError = Closed({
  error: Closed({
    code: OneOf(GATEWAY_ERROR_CODES),
    message: Type.String(),
    type: OneOf([...new Set(Object.values(GATEWAY_ERROR_TYPES))]),
    param: OrNull(Type.String(), {
      description: 'The field that is wrong, such as `messages[0].content`; null when it is not one field.',
    }),
  }),
})
export type GatewayError = Static<typeof GatewayError>

export const GatewayModel = Closed({
  id: Type.String(),
  object: Type.Literal('model'),
  created: Type.Integer({
    description: 'Unix time in seconds since when this gateway process has served the model.',
  }),
  owned_by: Type.String(),
  context_length: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: 'Tokens of prompt and completion together; left out where the operator does not say.',
    }),
  ),
  pricing: Type.Optional(
    Closed(
      {
        prompt: Type.String({ description: 'USD for one token of the prompt, as a decimal.' }),
        completion: Type.String({ description: 'USD for one token of the completion, as a decimal.' }),
        input_cache_read: Type.Optional(
          Type.String({ description: 'USD for one token of the prompt out of a cache; left out: as `prompt`.' }),
        ),
      },
      { description: 'Left out for a model that is free.' },
    ),
  ),
})
export type GatewayModel = Static<typeof GatewayModel>
export const GatewayModelList = Closed({ object: Type.Literal('list'), data: Type.Array(GatewayModel) })
export type GatewayModelList = Static<typeof GatewayModelList>

/** Usage in the running calendar month. A request counts once it has ended. */
export const GatewayUsage = Closed({
  object: Type.Literal('usage'),
  key_made_by: Type.Union(KeyMaker.anyOf, {
    description:
      "`client`: the operator registered the key's digest. `host`: the host minted the key, so that it can act as this client. The value comes from the operator's host: only a client that made its key itself can rely on `client`.",
  }),
  period: Closed({
    start: Type.String({ description: 'Start of the calendar month, ISO 8601 UTC.' }),
    end: Type.String({ description: 'Begin of the next one.' }),
  }),
  key: UsageSums,
  organization: OrNull(UsageSums, {
    description: 'All keys together; null for a key that was made for an instance.',
  }),
})
export type GatewayUsage = Static<typeof GatewayUsage>

/** Usage of the key, by model and day. */
export const GatewayUsageRows = Closed({ object: Type.Literal('usage.rows'), ...usageRows })
export type GatewayUsageRows = Static<typeof GatewayUsageRows>

export const GatewayHealth = Closed({ status: Type.Literal('ok') })
