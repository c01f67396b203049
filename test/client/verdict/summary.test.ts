// Goal: a verdict in fifteen lines at most, which names what it rests on, what was waived and what was not checked. The
// names of checks stand here once more, so that none loses its line unseen.

import { expect, test } from 'bun:test'
import { type Check, fail, notChecked, pass, verdict } from '../../../src/attest/verdict.ts'
import {
  basisLines,
  summaryLinesMax,
  verdictLineCharsMax,
  verdictSummary,
} from '../../../src/client/verdict/summary.ts'
import { paintFor } from '../../../src/terminal/render.ts'

const paint = paintFor(false)
const lines = (checks: readonly Check[], details: readonly Check[] = []) =>
  verdictSummary(verdict(checks), { verbose: false, details, paint }).split('\n').slice(0, -1)
const waiver = (name: string) => notChecked(name, 'accepted without a comparison', false)
const open = (name: string) => notChecked(name, 'it is optional', false)

/** The lines below a label, without it. */
const below = (label: string, all: readonly string[]) => {
  const from = all.findIndex(line => line.startsWith(label))
  if (from < 0) return []
  const rest = all.slice(from + 1)
  const to = rest.findIndex(line => !line.startsWith(' '))
  return [all[from] ?? '', ...rest.slice(0, to < 0 ? undefined : to)].map(line => line.slice(13))
}

test('goal: each waiver has a line, and what it covers has none below `not checked`', () => {
  const COVERED: Readonly<Record<string, readonly string[]>> = {
    'pin-measurement': ['measurement', 'vtpm-measurement', 'mr-td'],
    'pin-allowlist': ['allowlist', 'admission', 'operator-key', 'id-key-digest', 'author-key-digest'],
    'pin-operator-key': ['operator-key', 'id-key-digest', 'author-key-digest'],
    'pin-vmpl': ['vmpl'],
    'pin-crl': ['chain-revocation'],
    'pin-gateway': [],
    'pin-tcb': [],
    'pin-pcrs': [],
    'pin-rtmr': ['rtmr1', 'rtmr2'],
    'pin-gpu': [
      ...['gpu-policy-architecture', 'gpu-policy-driver-version', 'gpu-policy-vbios-version'],
      ...['gpu-policy-mode', 'gpu-policy-ueid', 'gpu-policy-device-serial'],
    ],
    'pin-gpu-ocsp': ['gpu-chain-ocsp', 'gpu-rim-ocsp'],
    'pin-gpu-devtools': ['gpu-devtools'],
    'response-upstream': [],
    source: [],
  }
  for (const [name, covered] of Object.entries(COVERED)) {
    const shown = lines([pass('a'), waiver(name), ...covered.map(open), open('another')])
    expect([name, below('accepted', shown)]).toEqual([name, ['without a comparison']])
    expect([name, below('not checked', shown)]).toEqual([name, ['another: it is optional']])
    for (const other of covered) {
      const alone = lines([pass('a'), open(other)])
      expect([other, below('not checked', alone)]).toEqual([other, [`${other}: it is optional`]])
    }
  }
})

test('goal: what a good verdict rests on, each finding with its label', () => {
  const RESTS = [
    ['root', ['chain-root', 'pck-chain', 'gpu-0/gpu-chain-root']],
    ['measurement', ['measurement', 'mr-td']],
    ['TCB', ['tcb-level']],
    ['workloads', ['pin-allowlist']],
    ['prompts', ['workload-upstreams', 'prompts']],
    ['settings', ['workload-settings']],
    ['operator', ['pin-operator-key']],
    ['VMPL', ['vmpl']],
    ['firmware', ['tcb-floor-snp', 'tcb-floor-microcode']],
    ['revocation', ['chain-revocation', 'revocation']],
    ['log', ['log-included', 'log-witnessed', 'log-age']],
    ['GPUs', ['gpu-required', 'gpu-evidence']],
    ['nonce', ['attestation-nonce', 'report/nonce']],
    ['vTPM', ['vtpm-binding']],
    ['PCRs', ['tpm-expected-pcrs', 'tpm-event-log']],
    ['launched', ['launch-document', 'image', 'launch-measurement']],
    ['disk', ['image-root-hash']],
    ['source', ['source']],
    ['built', ['request']],
    ['fetched', ['fetch']],
    ['artifacts', ['artifact-digests']],
    ['own key', ['own-key']],
    ['host key', ['known-hosts']],
    ['TLS key', ['tls-binding']],
    ['response', ['response-receipt']],
    ['upstream', ['response-upstream']],
    ['key', ['response-key-maker', 'gateway-key-maker']],
  ] as const
  for (const [label, names] of RESTS) {
    for (const name of names) expect(basisLines([pass(name, 'it is\nso')])).toEqual([`${label}: it is so`])
    expect(basisLines(names.map(name => pass(name, name)))).toEqual([`${label}: ${names.join('; ')}`])
    for (const name of names) expect(basisLines([pass(name), fail(name, 'no'), open(name)])).toEqual([])
  }
  const all = RESTS.flatMap(([, names]) => names.map(name => pass(name, 'x'))).toReversed()
  expect(basisLines(all).map(line => line.split(':')[0])).toEqual(RESTS.map(([label]) => label))
})

test('goal: a waived VMPL or TCB is named as it was found, in the verdict or in a receipt', () => {
  const vmpl = [waiver('pin-vmpl'), pass('vmpl', '2; any is accepted')]
  expect(below('accepted', lines([pass('a'), ...vmpl]))).toEqual(['without a comparison; it is 2'])
  const tcb = [pass('vek-tcb', 'snp 23, microcode 213; of the VCEK')]
  expect(below('accepted', lines([pass('a'), waiver('pin-tcb')], tcb))).toEqual([
    'without a comparison; it is snp 23, microcode 213',
  ])
  expect(below('accepted', lines([pass('a'), waiver('pin-tcb'), pass('vek-tcb', 'of the VCEK')]))).toEqual([
    'without a comparison',
  ])
})

test('goal: of a bad verdict what failed or is missing is shown, and what is not required is not among it', () => {
  const shown = lines([
    pass('chain-root', 'AMD'),
    fail('report-signature', 'it does not fit'),
    notChecked('nonce', 'none was given', true),
    open('optional'),
  ])
  expect(below('failed', shown)).toEqual(['report-signature: it does not fit', 'nonce: none was given'])
  expect(below('rests on', shown)).toEqual([])
  expect(below('not checked', shown)).toEqual(['optional: it is optional'])
  expect(shown.at(-1)).toBe(
    '4 checks: 1 passed, 1 failed, 1 required but not made, 1 not required; --verbose prints each',
  )
})

test('goal: one line for the same group of several receipts, and one for each reason', () => {
  const receipts = ['gateway', 'inference-router'].map(name => fail(`${name}/nonce`, 'another one'))
  expect(below('failed', lines([...receipts, fail('a', 'no'), fail('b', 'no')]))).toEqual([
    'nonce of 2 receipts: another one',
    'a and 1 more: no',
  ])
  const apart = [fail('gateway/nonce', 'one'), fail('inference-router/nonce', 'two')]
  expect(below('failed', lines(apart))).toEqual(['nonce of 2 receipts: one, and so on'])
})

test('goal: no more than fifteen lines of 600 characters, floors of the firmware first among what was not checked', () => {
  const many = (count: number, of: (name: string) => Check) =>
    Array.from({ length: count }, (_, at) => of(`check-${at}`))
  const failed = lines(many(9, name => fail(name, `${name} failed`)))
  expect(below('failed', failed)).toHaveLength(6)
  expect(below('failed', failed).at(-1)).toBe('and 4 more, see --verbose')
  const skipped = many(9, name => notChecked(name, `${name} is not compared`, false))
  const shown = lines([pass('a'), ...skipped, open('tcb-floor-age'), notChecked('log-witnessed', 'no witness', false)])
  expect(below('not checked', shown)).toEqual([
    'tcb-floor-age: it is optional',
    'log-witnessed: no witness',
    'check-0: check-0 is not compared',
    'and 8 more, see --verbose',
  ])
  const full = lines([...many(9, name => fail(name, `${name} ${'x'.repeat(2_000)}`)), waiver('pin-vmpl'), ...skipped])
  expect([summaryLinesMax, verdictLineCharsMax]).toEqual([15, 600])
  expect(full.length).toBeLessThanOrEqual(15)
  expect(Math.max(...full.map(line => line.length))).toBe(600)
})

test('goal: what failed stands before what could not be judged, devices are no receipts, and counts part the two', () => {
  const open = (name: string) => notChecked(name, 'gpu-chain is not good', true)
  const checks = [open('gpu-0/gpu-rim'), open('gpu-1/gpu-rim'), fail('pin-gpu', 'no GPU is named')]
  const text = verdictSummary({ ok: false, checks }, { verbose: false, paint })
  expect(text.split('\n').slice(1, 4)).toEqual([
    'failed       pin-gpu: no GPU is named',
    '             gpu-rim of 2 devices: gpu-chain is not good',
    '3 checks: 0 passed, 1 failed, 2 required but not made, 0 not required; --verbose prints each',
  ])
})
