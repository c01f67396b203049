// The envelope of every JSON response of service A, and its errors (contract 2.1, 7.1). Pure.

import { WIRE_CODES, type WireCode } from '../../base/fault.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, type TSchema, Type } from '../type.ts'

/** Charset and length of the random part of a request id. */
export const requestIdPattern = '^req_[a-z0-9]{24}$'

const RequestId = Type.String({
  pattern: requestIdPattern,
  description: 'Drawn by the server for this one HTTP request; also in the X-Request-ID header.',
  examples: ['req_7f3k09xw2m5p8q1z4t6v0b2n'],
})
const CorrelationId = OrNull(Type.String(), {
  description: 'The X-Correlation-ID header of the request as it came, or null when there was none.',
})

/** A union of the table's codes. Its type is given because TypeScript cannot see through `map`. */
const WireErrorCode = Type.Unsafe<WireCode>(
  Type.Union(
    Object.keys(WIRE_CODES).map(code => Type.Literal(code)),
    { description: 'What went wrong, for programs.' },
  ),
)

/** A failure. `param` is present only when exactly one field of the request is at fault. */
export const Problem = Closed({
  code: WireErrorCode,
  message: Type.String({ description: 'For people; safe to show to end users. Its wording may change.' }),
  param: Type.Optional(Type.String({ description: 'The one request field at fault, named as on the wire.' })),
})
export type Problem = Static<typeof Problem>

export const FailureEnvelope = Closed({ request_id: RequestId, correlation_id: CorrelationId, error: Problem })
export type FailureEnvelope = Static<typeof FailureEnvelope>

/** The envelope around `data`. */
export function SuccessEnvelope<T extends TSchema>(data: T) {
  return Closed({ request_id: RequestId, correlation_id: CorrelationId, data })
}
