// For owners of launches: the measurements that a policy names, from firmware, kernel and disk; ID blocks. Pure.
//
// scripts/build-verifier.ts bundles this file for browsers. index.ts beside it judges evidence.

export * from '../attest/measuring.ts'
