// Exports for relying parties that judge evidence of virtual TPMs, beside the SNP report that binds them. Pure.

export { Malformed } from './malformed.ts'
export { decodeEventLog, type EventLog, type LogEvent } from './tpm/event-log.ts'
export { type EventLogInput, isDataMeasured, replayEventLog, verifyEventLog } from './tpm/event-log-verify.ts'
export { decodeHclReport, type HclReport, runtimeAttestationKey } from './tpm/hcl-report.ts'
export { encodeSpki, type TpmKey } from './tpm/key.ts'
export { decodeJwk, decodePemKey, decodeSpki } from './tpm/key-decode.ts'
export { type ParavisorInput, verifyParavisorVtpm } from './tpm/paravisor.ts'
export { decodePublicArea, decodeSizedPublic, type TpmPublic } from './tpm/public-area.ts'
export { type PcrValues, type QuoteInput, verifyQuote } from './tpm/quote.ts'
export { decodeQuote, decodeSignature, type Quote, type TpmSignature } from './tpm/structures.ts'
export {
  type Activation,
  type BindingEvidence,
  type FailedActivation,
  type SvsmInput,
  type VtpmKind,
  type VtpmQuote,
  type VtpmVerdict,
  verifyHostVtpm,
  verifySvsmVtpm,
} from './tpm/vtpm.ts'
export type { Check, Outcome, Verdict } from './verdict.ts'
