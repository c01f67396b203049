// What can go wrong with an upstream, in our own words: nothing that it said goes any further. Pure.

import { Fault } from '../../base/fault.ts'

type ReasonRow = {
  /** For the client. */
  readonly message: string
  /** Whether another upstream may be asked instead, as long as the client has nothing yet. */
  readonly elsewhere: boolean
  /** Whether it speaks against the upstream's health. */
  readonly unwell: boolean
  /** `x-should-retry`: a client that tries again by itself pays for it again where tokens were made. */
  readonly retry: boolean
}

const DOWN = { elsewhere: true, unwell: true, retry: true } as const
const SPOILT = { elsewhere: false, unwell: false, retry: false } as const

/** Every reason. The names go to logs and metrics. */
export const REASONS = {
  none_well: { message: 'No upstream of this model is available.', elsewhere: false, unwell: false, retry: true },
  unreachable: { message: 'The upstream cannot be reached.', ...DOWN },
  first_byte_timeout: { message: 'The upstream did not answer in time.', ...DOWN },
  status: { message: 'The upstream failed.', ...DOWN },
  content_type: { message: 'The upstream sent an answer of another kind.', ...DOWN },
  cut: { message: 'The answer of the upstream was cut short.', ...DOWN },
  idle_timeout: { message: 'The upstream fell silent.', ...DOWN },
  too_large: { message: 'The answer of the upstream is too large.', elsewhere: false, unwell: true, retry: false },
  malformed: { message: 'The upstream sent an invalid answer.', ...DOWN },
  reported_error: { message: 'The upstream reported a failure.', ...DOWN },
  unfinished: { message: 'The upstream ended its answer before it was complete.', ...DOWN },
  wrong_tool: { message: 'The answer does not keep to tool_choice.', ...SPOILT },
  not_json: { message: 'The answer is not the JSON object that response_format asks for.', ...SPOILT },
  schema_violated: { message: 'The answer violates the schema of response_format.', ...SPOILT },
} as const satisfies Record<string, ReasonRow>

export type UpstreamReason = keyof typeof REASONS

/** An upstream's failure. Fault upstream_failed. */
export class UpstreamFault extends Fault {
  readonly reason: UpstreamReason

  constructor(reason: UpstreamReason) {
    super('upstream_failed', REASONS[reason].message)
    this.reason = reason
  }

  get row(): ReasonRow {
    return REASONS[this.reason]
  }
}
