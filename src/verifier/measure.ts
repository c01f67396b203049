// For owners of launches: measurements for a policy from firmware, kernel and disk, and ID blocks. Pure.
//
// scripts/build-verifier.ts bundles this file for browsers. index.ts judges evidence.

export * from '../attest/measuring.ts'
