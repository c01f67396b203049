// The schema of the gateway's problem document. Pure.

import { keyConfigProblem } from '../../../attest/ehbp/protocol.ts'
import { Closed } from '../../../contract/forms.ts'
import { GatewayError } from '../../../contract/http/inference.ts'
import { type Static, Type } from '../../../contract/type.ts'

/** An error that is also a problem document (RFC 9457): `key_config_mismatch`, as defined by EHBP. */
export const GatewayProblem = Closed({
  type: Type.Literal(keyConfigProblem.type),
  title: Type.String(),
  error: GatewayError.properties.error,
})
export type GatewayProblem = Static<typeof GatewayProblem>
