// The package's entry `evidence`: judges the evidence of an instance, and SNP reports in any saved form. Pure.

export { AMD_ROOTS, type TrustedRoot } from '../../attest/amd/roots.ts'
export { Malformed } from '../../attest/malformed.ts'
export { policyWithFloors } from '../../attest/policy/floors.ts'
export { encodePolicy, type Policy, parsePolicy, strictPolicy } from '../../attest/policy/policy.ts'
export { decodeReport, type SnpReport } from '../../attest/report/report.ts'
export type { Check, Outcome, Verdict } from '../../attest/verdict.ts'
export {
  type InstanceIdentity,
  type InstanceQuestion,
  type InstanceVerdict,
  instanceAttestationBytesMax,
  readInstanceHostname,
  verifyInstance,
} from '../instance.ts'
export { type ExpectedImage, readExpectedImage } from '../launch.ts'
export { allInstancePins, type InstancePins, type ReportPins } from '../pins.ts'
export { defaultPolicy, type SavedReport, verifySavedReport } from '../report.ts'
export { readSimulatedRoot } from '../simulated-root.ts'
