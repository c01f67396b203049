// The library's public API, the one barrel of this repository: what relying parties verify with and what a VM issues receipts with. Pure.
//
// Modules are also imported by their own names inside this repository. The simulator is not here on purpose: the bundle for browsers
// holds no maker of certificates, so nothing in a relying party's hands can bring evidence about.

export { appraise } from './appraise.ts'
export type { PemOrDer } from './certificate-pem.codec.ts'
export { type ChainQuestion, verifyChain } from './chain.verify.ts'
export { type ChainInput, type PreparedChain, prepareChain } from './chain-prepare.verify.ts'
// Virtual TPMs.
export { decodeEventLog, type EventLog, type LogEvent } from './event-log.codec.ts'
export { isDataMeasured, replayEventLog, verifyEventLog } from './event-log.verify.ts'
export { type Evidence, type EvidenceQuestion, type EvidenceVerdict, verifyEvidence } from './evidence.verify.ts'
// What a launch will measure: firmware, kernels, processors, IGVM files, and who has signed for it.
export type { Hash } from './hash.ts'
export { type HybridSignature, keysDigest, type PublicKeys } from './hybrid.codec.ts'
export { type HybridKeys, makeHybridKeys, type Random, type SecretKeys, signHybrid } from './hybrid.ts'
export {
  defaultVerifiers,
  type HybridVerifiers,
  nativeVerifiers,
  portableVerifiers,
  type VerifySignature,
  verifyHybrid,
} from './hybrid.verify.ts'
export { type IdAuth, type IdBlock, type IdKey, readIdAuth, readIdBlock } from './id-block.codec.ts'
export { type IdKeys, publicIdKey, signIdBlock } from './id-block.ts'
export { type IdBlockVerdict, idKeyDigest, verifyIdBlock } from './id-block.verify.ts'
export { type IgvmFile, readIgvm } from './igvm.codec.ts'
export { buildIgvm, type IgvmBuild } from './igvm-build.ts'
export { IGVM_PROFILES, type IgvmDigest, type IgvmProfile, measureIgvm } from './igvm-measure.ts'
export { type KernelHashes, readKernelHashPage } from './kernel-hashes.codec.ts'
export { type BootFiles, kernelHashesOf } from './kernel-hashes.ts'
export {
  firmwareLaunchDigest,
  type LaunchDigest,
  type LaunchInput,
  type LaunchPart,
  type LaunchProfile,
  type LaunchVehicle,
  launchDigest,
  type PrecomputedLaunch,
  precomputedLaunchDigest,
} from './launch-digest.ts'
// Verdicts.
export { Malformed } from './malformed.ts'
export { type OvmfMetadata, type OvmfSection, readOvmf } from './ovmf.codec.ts'
export { policySchema } from './policy.schema.ts'
export { encodePolicy, type Policy, parsePolicy, strictPolicy } from './policy.ts'
export { type Cpuid, PRODUCTS, type Product, productOfCpuid, productOfReport } from './product.codec.ts'
export {
  type DecodedReceipt,
  decodeReceipt,
  encodeReceipt,
  type Platform,
  type Receipt,
  type ReceiptEvidence,
} from './receipt.codec.ts'
export { type EvidenceSource, issueReceipt, type StatementFields } from './receipt.ts'
export {
  type Expected,
  type ReceiptQuestion,
  type ReceiptVerdict,
  type VerifyTpm,
  verifyReceipt,
} from './receipt.verify.ts'
export { verifyReportSignature } from './report.verify.ts'
export { type FoundReport, findReport } from './report-form.codec.ts'
export { AMD_ROOTS } from './roots/amd.ts'
export type { TrustedRoot } from './roots/trusted-root.ts'
export { keyInfoNames, platformNames, policyNames, type Signer } from './snp-bits.codec.ts'
// SNP reports, their chains, and what a relying party wants of them.
export {
  decodeReport,
  encodeReport,
  type FirmwareVersion,
  type ReportVersion,
  reportSizeBytes,
  type SnpReport,
} from './snp-report.codec.ts'
// Statements and receipts, `strongroom/attest-pq/v1`.
export {
  decodeStatement,
  encodeStatement,
  type Image,
  reportDataOf,
  type Statement,
  type StatementKind,
  type StatementOf,
  statementFormat,
} from './statement.codec.ts'
export { decodeTcb, isTcbAtLeast, type Tcb, tcbText } from './tcb.codec.ts'
export { decodeQuote, decodeSignature, type Quote, type TpmSignature } from './tpm.codec.ts'
export { decodeJwk, decodePemKey, decodeSpki, encodeSpki, type TpmKey } from './tpm-key.codec.ts'
export { decodePublicArea, decodeSizedPublic, type TpmPublic } from './tpm-public.codec.ts'
export { type PcrValues, type QuoteInput, verifyQuote } from './tpm-quote.verify.ts'
export { VCPU_SIGNATURES, type VcpuType } from './vcpu-types.ts'
export type { Check, Outcome, Verdict } from './verdict.ts'
// The hash tree of a disk.
export { readVeritySuperblock, type VerityParameters, type VeritySuperblock } from './verity.codec.ts'
export { type ByteSource, type VerityOptions, type VerityRoot, verityRoot, verityRootOf } from './verity.ts'
export { type SevFeature, sevFeatureNames, sevFeatures } from './vmsa.codec.ts'
export { decodeHclReport, type HclReport, runtimeAttestationKey } from './vtpm.codec.ts'
export {
  type Activation,
  type BindingEvidence,
  type ParavisorInput,
  type SvsmInput,
  type VtpmKind,
  type VtpmQuote,
  type VtpmVerdict,
  verifyHostVtpm,
  verifyParavisorVtpm,
  verifySvsmVtpm,
} from './vtpm.verify.ts'
