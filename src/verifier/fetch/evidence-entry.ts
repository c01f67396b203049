// The package's entry `evidence`: judges the evidence of an instance, SNP reports in any saved form, and proofs of the
// transparency log. Pure.

export { AMD_ROOTS, type TrustedRoot } from '../../attest/amd/roots.ts'
export { decodeNoteKey, type NoteKey } from '../../attest/log/note.ts'
export { decodeLogProof, type LogProof } from '../../attest/log/proof.ts'
export { Malformed } from '../../attest/malformed.ts'
export { encodePolicy } from '../../attest/policy/encode.ts'
export { policyWithFloors } from '../../attest/policy/floor-policy.ts'
export { type Policy, parsePolicy, strictPolicy } from '../../attest/policy/policy.ts'
export { decodeReport, type SnpReport } from '../../attest/report/report.ts'
export type { Check, Outcome, Verdict } from '../../attest/verdict.ts'
export { encodeLogEntry, type LogFact } from '../../contract/http/log-entry.ts'
export { defaultPolicy } from '../default-policy.ts'
export {
  type InstanceIdentity,
  type InstanceQuestion,
  type InstanceVerdict,
  instanceAttestationBytesMax,
  readInstanceHostname,
  verifyInstance,
} from '../instance.ts'
export { allInstancePins, type InstancePins } from '../instance-pins.ts'
export { type ExpectedImage, readExpectedImage } from '../launch.ts'
export { type KnownLog, type LoggedQuestion, type LoggedVerdict, verifyLogged } from '../log.ts'
export type { ReportPins } from '../pins.ts'
export { type SavedReport, verifySavedReport } from '../report.ts'
export { readSimulatedRoot } from '../simulated-root.ts'
