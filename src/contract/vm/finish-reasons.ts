// Finish reasons in spans of the inference gateway (span.ts). Pure.

/** Why a choice ended, in OpenAI's words. */
export const FINISH_REASONS = ['stop', 'length', 'tool_calls', 'content_filter'] as const
export type FinishReason = (typeof FINISH_REASONS)[number]
/** Most choices of a request whose finish reasons are reported. */
export const finishReasonsMax = 128
