// The public API of the library, with which relying parties verify and measure, and a VM issues receipts. Pure.
//
// Inside this repository modules are imported directly. The simulator is left out on purpose: a relying party's bundle
// can then make no certificates, and so no evidence.

export * from './measuring.ts'
export * from './verifying.ts'
export * from './virtual-tpms.ts'
