// Goal: a program tells by exit code and by one word whether evidence is forged, unreadable, or refused by its own
// policy; a check that nobody has sorted counts as forged.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { appraise } from '../../src/attest/policy/appraise.ts'
import { floorChecks } from '../../src/attest/policy/floors.ts'
import { strictPolicy } from '../../src/attest/policy/policy.ts'
import { identifyReport } from '../../src/attest/report/identify.ts'
import { decodeReport } from '../../src/attest/report/report.ts'
import { appraiseTdx } from '../../src/attest/tdx/appraise.ts'
import { strictTdxPolicy } from '../../src/attest/tdx/encode-policy.ts'
import { decodeQuote } from '../../src/attest/tdx/quote.ts'
import { TDX_CHECKS } from '../../src/attest/tdx/verify.ts'
import { type Check, fail, notChecked, pass, verdict } from '../../src/attest/verdict.ts'
import { exitCodeOfVerdict, failureOf } from '../../src/terminal/verdict-exit.ts'
import { EVERY_PIN, pinCheckName } from '../../src/verifier/pins.ts'
import { simulatedQuotes } from '../rigs/attest/tdx/quotes.ts'
import { vectors } from '../rigs/program.ts'
import { documentFaults } from '../rigs/verdict-document.ts'

const of = (...checks: readonly Check[]) => failureOf(verdict(checks))
const good = pass('report-signature')

test('goal: every field of a policy, every pin and every floor is policy', () => {
  const report = decodeReport(new Uint8Array(readFileSync(join(vectors, 'reports/genoa-v5.bin'))))
  const identity = identifyReport(report, null)
  if (identity.kind === 'unknown') throw new Error(identity.reason)
  const names = [
    ...appraise(identity, strictPolicy()).map(check => check.name),
    ...floorChecks(report, 'genoa').map(check => check.name),
    ...EVERY_PIN.map(pinCheckName),
  ]
  expect(names.length).toBeGreaterThan(80)
  expect(names.filter(name => of(good, fail(name, 'x')) !== 'policy')).toEqual([])
})

test('goal: every field of a policy for TDX is policy, and every check before it is not', async () => {
  const [simulated] = await simulatedQuotes()
  const quote = decodeQuote(simulated?.quote ?? new Uint8Array())
  const beside = { pck: null, level: null, collateral: null }
  const names = appraiseTdx(quote, strictTdxPolicy(), beside).map(check => check.name)
  expect(names.length).toBeGreaterThan(30)
  expect(names.filter(name => of(good, fail(name, 'x')) !== 'policy')).toEqual([])
  expect(TDX_CHECKS.filter(name => of(good, fail(name, 'x')) === 'policy')).toEqual([])
})

test('goal: the kind of each other name of a check, written out: one that goes becomes evidence', () => {
  const kindsOf = (names: readonly string[]) => [...new Set(names.map(name => of(good, fail(name, 'x'))))]
  const policy = [
    // Values of a report that a relying party names.
    ...['product-allowed', 'signer', 'reserved-bytes', 'vmpl', 'measurement', 'host-data', 'report-data', 'chip-id'],
    ...['id-key-digest', 'author-key-digest', 'operator-key', 'firmware-order', 'report-version', 'family-id'],
    ...['image-id', 'report-id', 'report-id-ma', 'processor', 'chip-id-masked', 'launch-mitigations'],
    ...['current-mitigations', 'csp-id', 'crl-age', 'certificate-entries'],
    // The image, the gateway and its answers.
    ...['expected-image-name', 'workload-upstreams', 'workload-pinned', 'workload-settings', 'response-upstream'],
    ...['gateway-configuration', 'prompts', 'own-key', 'gateway-key', 'expected-operator-key', 'image'],
    // The TPM, the log and GPUs.
    ...['tpm-expected-pcrs', 'vtpm-measurement', 'log-witnessed', 'log-age', 'gpu-devtools'],
    ...['gpu-policy-mode', 'pin-pcrs', 'pin-rtmr', 'pin-gpu', 'pin-gpu-ocsp', 'pin-gpu-devtools', 'pin-of-tomorrow'],
    // Fields of a TDX quote.
    ...['quote-version', 'header-reserved', 'user-data', 'tee-tcb-svn', 'tee-tcb-svn2', 'mr-seam', 'mr-signer-seam'],
    ...['seam-attributes', 'xfam', 'mr-td', 'mr-config-id', 'mr-owner', 'mr-owner-config', 'rtmr0', 'rtmr1', 'rtmr2'],
    ...['rtmr3', 'mr-service-td', 'fmspc', 'ppid', 'tcb-status', 'advisories', 'tcb-date'],
    ...['tcb-evaluation-data-number'],
    ...['collateral-age', 'td-attributes-debug'],
    // Groups of fields.
    ...['tcb-floor-snp', 'guest-policy-debug', 'platform-info-smt', 'key-info-author', 'minimum-tcb', 'maximum-tcb'],
    ...['tcb-order-current', 'committed-firmware'],
  ]
  expect(kindsOf(policy)).toEqual(['policy'])
  expect(kindsOf(policy.map(name => `gateway/${name}`))).toEqual(['policy'])
  const input = ['report-form', 'certificate-table', 'vek-certificate', 'quote-form', 'collateral-form']
  expect(kindsOf([...input, 'gateway-key-maker', 'report-format', 'log-format'])).toEqual(['input'])
  expect(kindsOf(['connection', 'log-connection', 'gateway/connection'])).toEqual(['connection'])
  const evidence = [
    'image-root-hash',
    'launch-measurement',
    'instance',
    'vek-tcb',
    'vek-chip-id',
    'tcb-level',
    'vtpm-vmpl',
    'my-pin-x',
    'vmpl-x',
    'format',
    'source',
  ]
  expect(kindsOf(evidence)).toEqual(['evidence'])
})

test('goal: signatures, chains, bindings and whatever is new are evidence, and go before a policy', () => {
  const names = ['report-signature', 'chain-signatures', 'chain-revocation', 'vek-chip-id', 'tls-binding', 'source']
  for (const name of [...names, 'attestation-nonce', 'report-data-expected', 'of-tomorrow']) {
    expect([name, of(good, fail(name, 'x'), fail('pin-crl', 'x'))]).toEqual([name, 'evidence'])
  }
})

test('goal: what cannot be read is input, and so is what a check lacks; a good verdict has no failure', () => {
  expect(of(fail('report-form', 'x'), fail('vek-product', 'x'), fail('pin-crl', 'x'))).toBe('input')
  expect(of(good, notChecked('chain-revocation', 'no CRL was given', true))).toBe('input')
  expect(of(fail('connection', 'x'))).toBe('connection')
  expect([of(good), of()]).toEqual([null, 'input'])
})

test('goal: a group of checks has the kind of those that failed in it', () => {
  const group = (member: Check) => {
    const found = verdict([fail('gateway/evidence', `${member.name}: ${member.reason}`)])
    return [failureOf(found, { details: [good, member] }), failureOf(found)]
  }
  expect(group(fail('guest-policy-debug', 'debug is allowed'))).toEqual(['policy', 'evidence'])
  expect(group(fail('report-signature', 'it does not fit'))).toEqual(['evidence', 'evidence'])
  // A name within another one is no member: it would make evidence a matter of policy.
  const other = verdict([fail('gateway/evidence', 'vtpm-vmpl: the report is of VMPL 1')])
  expect(failureOf(other, { details: [fail('vmpl', '1 is not 0')] })).toBe('evidence')
})

test("goal: the sum of a receipt's evidence is of the kind of what failed in it, whichever group has that", () => {
  const sum = fail('evidence', 'the hardware evidence is not good; see its checks')
  const groups = (member: Check) => [
    fail('receipt/evidence', `evidence: ${sum.reason}`),
    fail('receipt/measurement', `${member.name}: ${member.reason}`),
  ]
  const failed = (...members: readonly Check[]) =>
    failureOf(verdict(members.flatMap(groups)), { details: [good, sum, ...members] })
  const [refused, forged] = [fail('measurement', 'it is not one of 1'), fail('statement-measurement', 'another one')]
  expect([failed(refused), failed(forged), failed(refused, forged)]).toEqual(['policy', 'evidence', 'evidence'])
  // Nothing else says why: it is no matter of policy.
  expect(failureOf(verdict([fail('receipt/evidence', `evidence: ${sum.reason}`)]), { details: [good, sum] })).toBe(
    'evidence',
  )
})

test('goal: a check against a file that the relying party names is policy, alone and in a group; elsewhere it is evidence', () => {
  const member = fail('expected-allowlist-digest', 'aa is not bb')
  const found = verdict([fail('gateway/allowlist', `${member.name}: ${member.reason}`), fail('gateway/admission', 'x')])
  const named = new Set(['expected-allowlist-digest', 'admission'])
  expect(failureOf(found, { details: [member] })).toBe('evidence')
  expect(failureOf(found, { details: [member], named })).toBe('policy')
  const forged = verdict([...found.checks, fail('gateway/evidence', 'report-signature: x')])
  expect(failureOf(forged, { details: [member, fail('report-signature', 'x')], named })).toBe('evidence')
})

test('goal: each failure has an exit code of its own', () => {
  const names = ['report-form', 'report-signature', 'vmpl', 'connection']
  expect(names.map(name => exitCodeOfVerdict(verdict([fail(name, 'x')])))).toEqual([2, 1, 6, 3])
  expect(exitCodeOfVerdict(verdict([good]))).toBe(0)
})

test('goal: a field that the published schema lacks, or another type, is a fault', () => {
  const argv = ['verify', 'id-block', '--json']
  const document = { ok: true, failed: null, checks: [], id_key_digest: null, author_key_digest: null }
  expect(documentFaults(argv, JSON.stringify(document))).toEqual([])
  expect(documentFaults(argv, JSON.stringify({ ...document, more: 1 }))).not.toEqual([])
  expect(documentFaults(argv, JSON.stringify({ ...document, failed: 'x' }))).not.toEqual([])
})
