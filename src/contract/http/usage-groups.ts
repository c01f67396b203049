// Groups by which usage of the gateway can be summed. Pure.

export const USAGE_GROUPS = ['key', 'model', 'day'] as const
/** For an operator: with the labels of requests. */
export const LABELLED_USAGE_GROUPS = [...USAGE_GROUPS, 'user', 'tags'] as const
export type UsageGroup = (typeof LABELLED_USAGE_GROUPS)[number]
