// Goal: the names of checks are output that users match on: one that changes, goes or comes is written here, too.

import { expect, test } from 'bun:test'
import {
  GPU_POLICY_CHECKS,
  keyMakerCheckName,
  sourceCheckName,
  upstreamCheckName,
} from '../../src/attest/check-names.ts'
import { FLOOR_PARTS, floorCheckName } from '../../src/attest/policy/floors.ts'
import { TDX_CHECKS } from '../../src/attest/tdx/verify.ts'
import { QUOTE_CHECKS } from '../../src/attest/tpm/quote.ts'
import { CHAIN_CHECKS } from '../../src/attest/verify/chain.ts'
import { PREPARED_CHECKS } from '../../src/attest/verify/chain-prepare.ts'
import { LINES } from '../../src/guest/verify/line.ts'
import { EVERY_PIN, pinCheckName } from '../../src/verifier/pins.ts'

test('goal: the checks of a chain, in their order', () => {
  expect([...PREPARED_CHECKS, ...CHAIN_CHECKS]).toEqual([
    'vek-certificate',
    'chain-certificates',
    'chain-root',
    'chain-algorithms',
    'chain-names',
    'chain-authority',
    'chain-signatures',
    'chain-validity',
    'chain-revocation',
    'vek-product',
    'vek-signer',
    'vek-chip-id',
    'vek-tcb',
  ])
})

test('goal: the checks of a TDX quote, in their order', () => {
  expect([...TDX_CHECKS]).toEqual([
    'quote-form',
    'collateral-form',
    'pck-chain',
    'root-crl',
    'pck-crl',
    'revocation',
    'tcb-info-chain',
    'tcb-info-signature',
    'tcb-info-time',
    'qe-identity-chain',
    'qe-identity-signature',
    'qe-identity-time',
    'qe-vendor',
    'qe-report-signature',
    'qe-report-binding',
    'qe-identity',
    'quote-signature',
    'tcb-info-platform',
    'tdx-module',
    'tcb-level',
    'tcb-not-revoked',
  ])
})

test('goal: the checks of a TPM quote, floors, pins, GPUs and responses', () => {
  expect([...QUOTE_CHECKS]).toEqual(['tpm-quote-signature', 'tpm-quote-format', 'tpm-quote-nonce', 'tpm-quote-pcrs'])
  expect(FLOOR_PARTS.map(floorCheckName)).toEqual([
    'tcb-floor-snp',
    'tcb-floor-microcode',
    'tcb-floor-launch-snp',
    'tcb-floor-launch-microcode',
    'tcb-floor-alias-check',
  ])
  expect(EVERY_PIN.map(pinCheckName)).toEqual([
    'pin-measurement',
    'pin-allowlist',
    'pin-operator-key',
    'pin-gateway',
    'pin-vmpl',
    'pin-crl',
    'pin-tcb',
  ])
  expect([...GPU_POLICY_CHECKS]).toEqual([
    'gpu-policy-architecture',
    'gpu-policy-driver-version',
    'gpu-policy-vbios-version',
    'gpu-policy-mode',
    'gpu-policy-ueid',
    'gpu-policy-device-serial',
  ])
  expect([sourceCheckName, upstreamCheckName, keyMakerCheckName]).toEqual([
    'source',
    'response-upstream',
    'response-key-maker',
  ])
})

test('goal: the lines that a guest shows, in their order', () => {
  expect([...LINES]).toEqual([
    'hardware attestation',
    'TPM measurements',
    'host-key binding',
    'inference provider attestation',
    'external-access lockout',
  ])
})
