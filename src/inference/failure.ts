// Failures of an upstream in the gateway's own words: no text of an upstream reaches a client. Pure.

import { Fault } from '../base/fault.ts'
import type { Tokens } from './types.ts'

type ReasonRow = {
  /** Default: upstream_failed. */
  readonly code?: 'attestation_unavailable'
  /** Message for the client. */
  readonly message: string
  /** True if another upstream may be tried before the first event of the answer. */
  readonly retryable: boolean
  /** Whether several of these failures in a row eject the upstream. */
  readonly countsAgainstHealth: boolean
  /** `x-should-retry`. False if tokens were generated, because a client that retries pays for them again. */
  readonly clientShouldRetry: boolean
  /** True if the client pays for generated text that breaks the format it requested. */
  readonly isCharged: boolean
}

const UPSTREAM_FAILED = {
  retryable: true,
  countsAgainstHealth: true,
  clientShouldRetry: true,
  isCharged: false,
} as const
/** The gateway itself ends such an answer. A client that retried would get the same result again. */
const ANSWER_REFUSED = { ...UPSTREAM_FAILED, clientShouldRetry: false } as const
/** The upstream is well, but does not serve this: its configuration or ours is wrong. */
const NOT_SERVED = { retryable: true, countsAgainstHealth: false, clientShouldRetry: false, isCharged: false } as const
const MODEL_FAILED = {
  retryable: false,
  countsAgainstHealth: false,
  clientShouldRetry: false,
  isCharged: true,
} as const

/** All reasons. Their names are logged. */
export const REASONS = {
  none_healthy: {
    message: 'No engine for this model is available. Retry in a minute; if it persists, contact the operator.',
    retryable: false,
    countsAgainstHealth: false,
    clientShouldRetry: true,
    isCharged: false,
  },
  unattested: {
    code: 'attestation_unavailable',
    message: 'The engine of this model has not passed attestation yet. Retry later, or contact the operator.',
    retryable: true,
    countsAgainstHealth: false,
    clientShouldRetry: true,
    isCharged: false,
  },
  unreachable: {
    message: 'The engine of this model cannot be reached. Retry in a minute, or contact the operator.',
    ...UPSTREAM_FAILED,
  },
  first_byte_timeout: {
    message: 'The engine sent nothing within the time limit. Send a shorter prompt, or contact the operator.',
    ...ANSWER_REFUSED,
  },
  status: {
    message: 'The engine of this model failed. Retry, or contact the operator with the request id.',
    ...UPSTREAM_FAILED,
  },
  credentials: {
    message: 'The engine of this model does not accept the key of this gateway. Contact the operator.',
    ...NOT_SERVED,
  },
  no_such_route: {
    message: 'The engine does not serve this model or this route. Choose another model, or contact the operator.',
    ...NOT_SERVED,
  },
  content_type: { message: 'The engine sent an unexpected content type. Contact the operator.', ...ANSWER_REFUSED },
  cut: { message: 'The engine closed the connection early. Retry the request.', ...UPSTREAM_FAILED },
  idle_timeout: {
    message: 'The engine stopped in the middle of the answer. Send a shorter request, or contact the operator.',
    ...ANSWER_REFUSED,
  },
  too_large: {
    message: 'The answer is too large. Lower max_tokens.',
    retryable: false,
    countsAgainstHealth: true,
    clientShouldRetry: false,
    isCharged: false,
  },
  malformed: { message: 'The engine sent an invalid answer. Contact the operator.', ...ANSWER_REFUSED },
  out_of_memory: {
    message: 'The engine of this model is out of memory; try again later, or send a shorter prompt.',
    ...UPSTREAM_FAILED,
  },
  reported_error: { message: 'The engine reported an error. Retry, or contact the operator.', ...UPSTREAM_FAILED },
  unfinished: { message: 'The engine ended its answer too early. Contact the operator.', ...ANSWER_REFUSED },
  /**
   * Only some models return as many dimensions as requested: the client's choice must not count against an upstream.
   */
  wrong_dimensions: { message: 'The model does not support this number of dimensions.', ...NOT_SERVED },
  wrong_tool: { message: 'The answer does not follow tool_choice.', ...MODEL_FAILED },
  bad_arguments: {
    message: 'The arguments of a call of a strict tool are not a JSON object.',
    ...MODEL_FAILED,
  },
  not_json: { message: 'The answer is not the JSON object that the request requires.', ...MODEL_FAILED },
  no_summary: {
    message: 'The model did not complete the summary. Shorten the input, or raise max_output_tokens.',
    ...MODEL_FAILED,
  },
  check_unavailable: {
    message: 'The schema of the request cannot be checked now.',
    retryable: false,
    countsAgainstHealth: false,
    clientShouldRetry: true,
    isCharged: false,
  },
  schema_violated: { message: 'The answer violates the schema of the request.', ...MODEL_FAILED },
} as const satisfies Record<string, ReasonRow>

export type UpstreamReason = keyof typeof REASONS

/** An upstream's failure. Fault upstream_failed; attestation_unavailable if it must show evidence, and did not. */
export class UpstreamFault extends Fault {
  readonly reason: UpstreamReason
  /** Tokens to charge for the failure; null if nothing is charged or known. */
  readonly tokens: Tokens | null

  constructor(reason: UpstreamReason, tokens: Tokens | null = null, cause?: unknown) {
    const { code, message }: ReasonRow = REASONS[reason]
    super(code ?? 'upstream_failed', message, { cause })
    this.reason = reason
    this.tokens = tokens
  }

  /** Returns the same failure with its cost, if its kind is charged. */
  charged(tokens: Tokens): UpstreamFault {
    return this.row.isCharged ? new UpstreamFault(this.reason, tokens) : this
  }

  get row(): ReasonRow {
    return REASONS[this.reason]
  }
}

/** A Fault rate_limited: every upstream that could serve the request is at its limit. The wait is an estimate. */
export class BusyFault extends Fault {
  readonly retryAfterSeconds: number

  constructor(message: string, retryAfterSeconds: number, cause?: unknown) {
    super('rate_limited', message, { cause })
    this.retryAfterSeconds = retryAfterSeconds
  }
}
