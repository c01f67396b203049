// The wire of a gateway VM: what every guest takes, and what this one takes beside it. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { Check } from '@sinclair/typebox/value'
import type { AgentRequest, AgentResponse } from '../contract/vm/agent.ts'
import { ENCLAVE_REQUESTS, type ENCLAVE_RESPONSES, type EnclaveRequest } from '../contract/vm/enclave.ts'
import { jsonOf, type ParsedRequest, parseRequest } from '../guest/wire.codec.ts'

const EnclaveRequestSchema = Type.Union([...ENCLAVE_REQUESTS])

export type EnclaveResponse = AgentResponse | Static<(typeof ENCLAVE_RESPONSES)[number]>

type Parsed = Exclude<ParsedRequest, { kind: 'request' }> | { kind: 'request'; request: AgentRequest | EnclaveRequest }

/** Accepts exactly what the schemas say: unknown ops and unknown fields are refused. */
export function parseEnclaveRequest(text: string): Parsed {
  const value = jsonOf(text)
  return Check(EnclaveRequestSchema, value) ? { kind: 'request', request: value } : parseRequest(text)
}
