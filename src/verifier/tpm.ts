// Exports for judging the evidence of virtual TPMs. Pure.
//
// scripts/build-verifier.ts bundles this file for browsers. index.ts judges the SNP report that binds a TPM.

export * from '../attest/virtual-tpms.ts'
