// Exports for producers of evidence: measurements of launches, ID blocks and their signatures, hash trees of disks, and
// the receipts that a VM issues. Pure.

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
export { type IdAuth, type IdBlock, readIdAuth, readIdBlock } from './launch/id-block.ts'
export { type IdKeys, publicIdKey, signIdBlock } from './launch/id-block-sign.ts'
export { type IdBlockVerdict, idKeyDigest, verifyIdBlock } from './launch/id-block-verify.ts'
export type { IdKey } from './launch/id-key.ts'
export { type BootFiles, type KernelHashes, kernelHashesOf, readKernelHashPage } from './launch/kernel-hashes.ts'
export { type OvmfMetadata, type OvmfSection, readOvmf } from './launch/ovmf.ts'
export { VCPU_SIGNATURES, type VcpuType } from './launch/vcpu-types.ts'
export { type SevFeature, sevFeatureNames, sevFeatures } from './launch/vmsa-layout.ts'
export { Malformed } from './malformed.ts'
export { type HybridKeys, makeHybridKeys, portableSigner, type SecretKeys, signHybrid } from './receipt/hybrid-keys.ts'
export { type EvidenceSource, issueReceipt } from './receipt/issue.ts'
export type { StatementFields } from './receipt/new-statement.ts'
export type { Check, Outcome, Verdict } from './verdict.ts'
export { type ByteSource, type VerityOptions, type VerityRoot, verityRoot, verityRootOf } from './verity/root.ts'
export { readVeritySuperblock, type VerityParameters, type VeritySuperblock } from './verity/superblock.ts'
