// The public API of the library: what relying parties verify with, and what a VM issues receipts with. Pure.
//
// Inside this repository modules are imported directly. The simulator is left out on purpose: a relying party's bundle
// can then make no certificates, and so no evidence.

export { type Cpuid, PRODUCTS, type Product, productOfCpuid } from './amd/product.ts'
export { AMD_ROOTS, type TrustedRoot, type WholeRoot } from './amd/roots.ts'
export { decodeTcb, isTcbAtLeast, type Tcb, tcbText } from './amd/tcb.ts'
export type { PemOrDer } from './encoding/pem.ts'
// Measurements of a future launch: firmware, kernels, processors, IGVM files, and the signer of its ID block.
export type { Hash } from './hash.ts'
export { buildIgvm, type IgvmBuild } from './igvm/build.ts'
export { type IgvmFile, readIgvm } from './igvm/file.ts'
export { IGVM_PROFILES, type IgvmDigest, type IgvmProfile, measureIgvm } from './igvm/measure.ts'
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
} from './launch/digest.ts'
export { type IdAuth, type IdBlock, type IdKey, readIdAuth, readIdBlock } from './launch/id-block.ts'
export { type IdKeys, publicIdKey, signIdBlock } from './launch/id-block-sign.ts'
export { type IdBlockVerdict, idKeyDigest, verifyIdBlock } from './launch/id-block-verify.ts'
export { type BootFiles, type KernelHashes, kernelHashesOf, readKernelHashPage } from './launch/kernel-hashes.ts'
export { type OvmfMetadata, type OvmfSection, readOvmf } from './launch/ovmf.ts'
export { VCPU_SIGNATURES, type VcpuType } from './launch/vcpu-types.ts'
export { type SevFeature, sevFeatureNames, sevFeatures } from './launch/vmsa-layout.ts'
// Verdicts.
export { Malformed } from './malformed.ts'
export { appraise } from './policy/appraise.ts'
export {
  BULLETINS,
  FLOOR_PARTS,
  type Floor,
  type FloorPart,
  type FloorWaivers,
  floorChecks,
  floorRows,
  floorsCompiledOn,
  floorsFreshDays,
  OTHER_FLOORS,
  policyWithFloors,
} from './policy/floors.ts'
export { encodePolicy, type Policy, parsePolicy, strictPolicy } from './policy/policy.ts'
export { policySchema } from './policy/schema.ts'
export { type HybridKeys, makeHybridKeys, portableSigner, type SecretKeys, signHybrid } from './receipt/hybrid-keys.ts'
export {
  defaultVerifiers,
  type HybridVerifiers,
  nativeVerifiers,
  portableVerifiers,
  type VerifySignature,
  verifyHybrid,
} from './receipt/hybrid-verify.ts'
export { type EvidenceSource, issueReceipt, type StatementFields } from './receipt/issue.ts'
export { type HybridSignature, keysDigest, type PublicKeys } from './receipt/public-keys.ts'
export {
  type DecodedReceipt,
  decodeReceipt,
  encodeReceipt,
  type Platform,
  type Receipt,
  type ReceiptEvidence,
} from './receipt/receipt.ts'
export type { NativeKeys, ReceiptKeys, SignStatement } from './receipt/receipt-keys.ts'
export type { Random } from './receipt/seeds.ts'
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
} from './receipt/statement.ts'
export {
  type Expected,
  type ReceiptQuestion,
  type ReceiptVerdict,
  type VerifyTpm,
  verifyReceipt,
} from './receipt/verify.ts'
export { keyInfoNames, platformNames, policyNames, type Signer } from './report/bits.ts'
export { type FoundReport, findReport, hclClaimsCheck } from './report/form.ts'
export { type IdentifiedReport, identifyReport, type ReportIdentity } from './report/identify.ts'
// SNP reports, their chains, and what a relying party wants of them.
export {
  decodeReport,
  encodeReport,
  type FirmwareVersion,
  type ReportVersion,
  reportSizeBytes,
  type SnpReport,
} from './report/report.ts'
// Virtual TPMs.
export { decodeEventLog, type EventLog, type LogEvent } from './tpm/event-log.ts'
export { type EventLogInput, isDataMeasured, replayEventLog, verifyEventLog } from './tpm/event-log-verify.ts'
export { decodeHclReport, type HclReport, runtimeAttestationKey } from './tpm/hcl-report.ts'
export { decodeJwk, decodePemKey, decodeSpki, encodeSpki, type TpmKey } from './tpm/key.ts'
export { decodePublicArea, decodeSizedPublic, type TpmPublic } from './tpm/public-area.ts'
export { type PcrValues, type QuoteInput, verifyQuote } from './tpm/quote.ts'
export { decodeQuote, decodeSignature, type Quote, type TpmSignature } from './tpm/structures.ts'
export {
  type Activation,
  type BindingEvidence,
  type FailedActivation,
  type ParavisorInput,
  type SvsmInput,
  type VtpmKind,
  type VtpmQuote,
  type VtpmVerdict,
  verifyHostVtpm,
  verifyParavisorVtpm,
  verifySvsmVtpm,
} from './tpm/vtpm.ts'
export type { Check, Outcome, Verdict } from './verdict.ts'
export { type ChainQuestion, verifyChain } from './verify/chain.ts'
export { type ChainInput, type PreparedChain, prepareChain } from './verify/chain-prepare.ts'
export { type Evidence, type EvidenceQuestion, type EvidenceVerdict, verifyEvidence } from './verify/evidence.ts'
export { verifyReportSignature } from './verify/report-signature.ts'
export { type ByteSource, type VerityOptions, type VerityRoot, verityRoot, verityRootOf } from './verity/root.ts'
// The hash tree of a disk.
export { readVeritySuperblock, type VerityParameters, type VeritySuperblock } from './verity/superblock.ts'
