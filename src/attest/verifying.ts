// Exports for relying parties that judge evidence: SNP reports and their chains, policies, receipts. Pure.

export { type Cpuid, PRODUCTS, type Product, productOfCpuid } from './amd/product.ts'
export { AMD_ROOTS, type TrustedRoot, type WholeRoot } from './amd/roots.ts'
export { decodeTcb, isTcbAtLeast, type Tcb, tcbText } from './amd/tcb.ts'
export type { PemOrDer } from './encoding/pem.ts'
export type { Hash } from './hash.ts'
export { Malformed } from './malformed.ts'
export { appraise } from './policy/appraise.ts'
export { encodePolicy } from './policy/encode.ts'
export { floorRows, OTHER_FLOORS, policyWithFloors } from './policy/floor-policy.ts'
export {
  BULLETINS,
  FLOOR_PARTS,
  type Floor,
  type FloorPart,
  type FloorWaivers,
  floorChecks,
  floorsCompiledOn,
  floorsFreshDays,
} from './policy/floors.ts'
export { type Policy, parsePolicy, strictPolicy } from './policy/policy.ts'
export { policySchema } from './policy/schema.ts'
export type { HybridVerifiers, VerifySignature } from './receipt/hybrid-verify.ts'
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
  defaultVerifiers,
  nativeVerifiers,
  portableVerifiers,
  verifyHybrid,
  verifyReceipt,
} from './receipt/verifiers.ts'
export type { Expected, ReceiptQuestion, ReceiptVerdict, VerifyTpm } from './receipt/verify.ts'
export { keyInfoNames, platformNames, policyNames, type Signer } from './report/bits.ts'
export { type FoundReport, findReport, hclClaimsCheck } from './report/form.ts'
export { type IdentifiedReport, identifyReport, type ReportIdentity } from './report/identify.ts'
export {
  decodeReport,
  encodeReport,
  type FirmwareVersion,
  type ReportVersion,
  reportSizeBytes,
  type SnpReport,
} from './report/report.ts'
export type { Check, Outcome, Verdict } from './verdict.ts'
export { type ChainQuestion, verifyChain } from './verify/chain.ts'
export { type ChainInput, type PreparedChain, prepareChain } from './verify/chain-prepare.ts'
export { type Evidence, type EvidenceQuestion, type EvidenceVerdict, verifyEvidence } from './verify/evidence.ts'
export { verifyReportSignature } from './verify/report-signature.ts'
