// The relying party's public API: the attestation library, and the verification of an instance, of a gateway and of its
// responses. Pure.
//
// scripts/build-verifier.ts bundles this file for browsers. The verification of builds, which would add a tenth to what
// every page loads, stays out of it: build.ts beside this file is as portable. Modules inside this repository are
// imported by their own names.

export * from '../attest/index.ts'
export type { ResponseClaim } from '../attest/receipt/response.ts'
export type { ClaimDocument } from '../contract/vm/claim-document.ts'
export { type ExpectedAllowlist, readAllowlist } from './allowlist.ts'
export type { ExpectedGateway } from './claim.ts'
export {
  attestationBytesMax,
  freshAgeMsMax,
  type GatewayQuestion,
  type GatewayVerdict,
  nonceBytes,
  verifyGateway,
} from './gateway.ts'
export {
  type InstanceIdentity,
  type InstanceQuestion,
  type InstanceVerdict,
  instanceAttestationBytesMax,
  readInstanceHostname,
  verifyInstance,
} from './instance.ts'
export { type ExpectedImage, readExpectedImage } from './launch.ts'
export {
  allInstancePins,
  allPins,
  INSTANCE_PINS,
  type InstancePins,
  PIN_WORDS,
  PINS,
  type Pin,
  type Pins,
  pinCheckName,
  type ReportPins,
} from './pins.ts'
export { defaultPolicy, type SavedReport, verifySavedReport } from './report.ts'
export {
  type GatewayResponse,
  type GatewayResponseVerdict,
  type ResponseWaivers,
  verifyGatewayResponse,
} from './response.ts'
export { readSimulatedRoot } from './simulated-root.ts'
export type { KnownHost, SshKey } from './ssh-key.ts'
export { workloadIn } from './workload.ts'
