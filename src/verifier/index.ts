// The relying party's public API: judges SNP evidence and receipts, an instance, a gateway and its responses. Pure.
//
// scripts/build-verifier.ts bundles this file for browsers. Measurements of launches (measure.ts) and virtual TPMs
// (tpm.ts) have their own bundles, because few pages need them. The verification of builds is left out too, although
// build/build.ts is as portable. Modules inside this repository are imported by their own names.

export type { ResponseClaim } from '../attest/receipt/response.ts'
export * from '../attest/verifying.ts'
export type { ClaimDocument } from '../contract/vm/claim-document.ts'
export { type ExpectedAllowlist, readAllowlist } from './allowlist.ts'
export type { ExpectedGateway } from './claim.ts'
export { defaultPolicy } from './default-policy.ts'
export {
  attestationBytesMax,
  freshAgeMsMax,
  type GatewayQuestion,
  type GatewayVerdict,
  nonceBytes,
} from './gateway.ts'
export {
  type InstanceIdentity,
  type InstanceQuestion,
  type InstanceVerdict,
  instanceAttestationBytesMax,
  readInstanceHostname,
  verifyInstance,
} from './instance.ts'
export { allInstancePins, INSTANCE_PINS, type InstancePins } from './instance-pins.ts'
export { type ExpectedImage, readExpectedImage } from './launch.ts'
export {
  allPins,
  PIN_WORDS,
  PINS,
  type Pin,
  type Pins,
  pinCheckName,
  type ReportPins,
} from './pins.ts'
export { type SavedReport, verifySavedReport } from './report.ts'
export {
  type GatewayResponse,
  type GatewayResponseVerdict,
  type ResponseWaivers,
  verifyGatewayResponse,
} from './response.ts'
export { readSimulatedRoot } from './simulated-root.ts'
export type { KnownHost, SshKey } from './ssh-key.ts'
export { verifyGateway } from './verify-gateway.ts'
export { workloadIn } from './workload.ts'
