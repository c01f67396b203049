// Schemas of usage of the gateway summed by key, model and day (UTC). Pure.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { LABELLED_USAGE_GROUPS, USAGE_GROUPS } from './usage-groups.ts'

const Count = Type.Integer({ minimum: 0 })
const TextOrNull = OrNull(Type.String())

export const UsageSums = Closed({
  requests: Count,
  prompt_tokens: Count,
  completion_tokens: Count,
  cost_usd: Type.String({ pattern: '^[0-9]+\\.[0-9]{9}$', description: 'Exact, as a decimal.' }),
})
export type UsageSums = Static<typeof UsageSums>

const names = { day: TextOrNull, key: TextOrNull, model: TextOrNull }
const days = {
  from: Type.String({ description: 'First day in UTC, like 2026-11-01.' }),
  to: Type.String({ description: 'Last day in UTC; it is included.' }),
}

/** Properties of a response with rows. */
export const usageRows = {
  ...days,
  by: Type.Array(OneOf(USAGE_GROUPS)),
  rows: Type.Array(Closed({ ...names, ...UsageSums.properties }), {
    description: 'By day, key and model. What was not asked for is null.',
  }),
  total: UsageSums,
}

/** The same for an operator. */
export const labelledUsageRows = {
  ...days,
  by: Type.Array(OneOf(LABELLED_USAGE_GROUPS)),
  rows: Type.Array(Closed({ ...names, user: TextOrNull, tags: TextOrNull, ...UsageSums.properties }), {
    description:
      'By day, key, model, user and tags. What was not asked for is null, and so are labels that requests did not have.',
  }),
  total: UsageSums,
}
