// Exports that both halves of the package share beside `attestedFetch`: judging a gateway and its responses, policies,
// errors and types. The other exports, which a page with `attestedFetch` does not need, have their own entries:
// report-entry.ts, evidence-entry.ts.

export { AMD_ROOTS, type TrustedRoot } from '../../attest/amd/roots.ts'
export { Malformed } from '../../attest/malformed.ts'
export { encodePolicy } from '../../attest/policy/encode.ts'
export { policyWithFloors } from '../../attest/policy/floor-policy.ts'
export { type Policy, parsePolicy, strictPolicy } from '../../attest/policy/policy.ts'
export { policySchema } from '../../attest/policy/schema.ts'
export type { PublicKeys } from '../../attest/receipt/public-keys.ts'
export type { ResponseClaim } from '../../attest/receipt/response.ts'
export type { SnpReport } from '../../attest/report/report.ts'
export type { Check, Outcome, Verdict } from '../../attest/verdict.ts'
export { type ExpectedAllowlist, readAllowlist } from '../allowlist.ts'
export {
  attestationBytesMax,
  freshAgeMsMax,
  type GatewayQuestion,
  type GatewayVerdict,
  nonceBytes,
} from '../gateway.ts'
export { allPins, type Pins, type ReportPins } from '../pins.ts'
export {
  type GatewayResponse,
  type GatewayResponseVerdict,
  type ResponseWaivers,
  verifyGatewayResponse,
} from '../response.ts'
export { readSimulatedRoot } from '../simulated-root.ts'
export { verifyGateway } from '../verify-gateway.ts'
export type { AttestedFetch } from './attested-fetch.ts'
export {
  AttestedFetchError,
  ConnectionError,
  EncryptionError,
  EvidenceError,
  IncompleteResponseError,
  KeyChangedError,
  KeyMakerError,
  OptionError,
  RequestError,
  VerificationError,
} from './errors.ts'
export type { Evidence } from './evidence.ts'
export type { AttestedFetchOptions } from './options.ts'
export type { FetchInput } from './request.ts'
