// Kinds and names of upstreams that the configuration and the gateway share. A module of its own because the measured
// program of the gateway's VM reads no configuration file. Pure.

/**
 * Kinds of servers. They differ in request fields beyond OpenAI's, and in separating the prompt
 * caches of keys.
 */
export const ENGINES = ['openai', 'llama-server', 'vllm', 'sglang', 'text-embeddings-inference'] as const
export type Engine = (typeof ENGINES)[number]

/** Kinds of content parts beside text. */
export const CONTENT_KINDS = ['image', 'audio', 'video', 'file'] as const
export type ContentKind = (typeof CONTENT_KINDS)[number]

/** The name of the built-in worker among the upstreams, in receipts and metrics. */
export const workerUpstreamName = 'built-in'
