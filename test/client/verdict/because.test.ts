// Goal: each thing that failed has one line, in plain words and with the check and its reason.

import { expect, test } from 'bun:test'
import { fail, notChecked, pass } from '../../../src/attest/verdict.ts'
import { becauseLines } from '../../../src/client/verdict/because.ts'
import { imageCheck } from '../../../src/verifier/launch.ts'
import { sampleImage, sampleLaunch } from '../../rigs/instances/instance-attestation.ts'

test('goal: what failed and what is missing, without what is optional or passed', () => {
  expect(
    becauseLines([
      pass('a', 'x'),
      notChecked('b', 'optional', false),
      notChecked('c', 'missing', true),
      fail('own-key', 'another key'),
    ]),
  ).toEqual(['c could not be checked (missing)', 'it lets in an SSH key that is not yours (own-key: another key)'])
})

test('goal: a pin that is missing has its remedy, and not the name of its check', () => {
  expect(becauseLines([fail('pin-measurement', 'name yours in a --policy')])).toEqual([
    'you named no expected image (name yours in a --policy)',
  ])
})

// Goal: what a person may copy is in the commands, quoted; the reason has no flag with a name that a host chose.
test.each([
  [
    'upstream a=http://x is OUTSIDE; accept that by --allow-outside a=http://x; prompts go',
    'upstream a=http://x is OUTSIDE',
  ],
  [
    'OUTSIDE: m to $(x) (no TLS); not attested: y: allow it with --allow-outside $(x), allow it',
    'OUTSIDE: m to $(x) (no TLS); not attested: y',
  ],
  ['nothing attests it; accept that with --unattested-gateway host', 'nothing attests it'],
])('%s', (reason, shown) => {
  expect(becauseLines([fail('prompts', reason)])).toEqual([
    `its prompts do not go where you expect (prompts: ${shown})`,
  ])
})

test('goal: one line for the same group of several receipts', () => {
  const group = ['gateway', 'inference-router'].map(name => fail(`${name}/nonce`, `${name} differs`))
  expect(becauseLines(group)).toEqual([
    'the evidence was made for another request, or at another time (nonce of 2 receipts: gateway differs, and so on)',
  ])
})

test('goal: the sum of a receipt has no line beside what it sums up, and has one alone', () => {
  const sum = fail('receipt/evidence', 'evidence: the hardware evidence is not good; see its checks')
  expect(becauseLines([sum, fail('receipt/measurement', 'measurement: 09 is not 0a')])).toEqual([
    'another image runs there than you expect (measurement: measurement: 09 is not 0a)',
  ])
  expect(becauseLines([sum])).toHaveLength(1)
})

test('goal: a root that is not trusted is said as such', () => {
  const [line] = becauseLines([fail('receipt/evidence', 'chain-root: the ARK X is not one of the trusted roots')])
  expect(line).toStartWith('no root that you trust signed its evidence (evidence: chain-root: ')
})

test('goal: no more than six lines, and the last counts the others', () => {
  const lines = becauseLines(Array.from({ length: 9 }, (_, at) => fail(`check-${at}`, 'no')))
  expect([lines.length, lines.at(-1)]).toEqual([6, 'and 4 more; --verbose prints each check'])
})

// Goal: a check that was not made accuses nobody of what it would have looked for.
test.each([
  ['receipt/measurement', 'measurement: there is no report'],
  ['own-key', 'the key in the claim cannot be read'],
  ['artifact-digests', 'provenance.json cannot be read'],
  ['response-upstream', 'the receipt cannot be read'],
  ['receipt/evidence', 'chain-root: there is no chain to check'],
])('not made: %s', (name, reason) => {
  const own = name.slice(name.indexOf('/') + 1)
  expect(becauseLines([notChecked(name, reason, true)])).toEqual([`${own} could not be checked (${reason})`])
})

test('goal: receipts that were not compared are no example of one that failed', () => {
  const group = [
    notChecked('gateway/measurement', 'there is no report', true),
    fail('inference-router/measurement', '09 is not 0a'),
  ]
  expect(becauseLines(group)).toEqual(['another image runs there than you expect (measurement: 09 is not 0a)'])
  expect(becauseLines(group.map(({ name }) => notChecked(name, 'there is no report', true)))).toEqual([
    'measurement of 2 receipts could not be checked (there is no report)',
  ])
})

test('goal: a certificate that cannot be read is no root that is not trusted', () => {
  const reason =
    'vek-certificate: not DER; chain-certificates: vek-certificate failed; chain-root: vek-certificate failed'
  const [line] = becauseLines([fail('receipt/evidence', reason)])
  expect(line).toStartWith("the hardware's evidence is not good (evidence: vek-certificate: ")
})

test('goal: a shape that the manifest lacks is not said to be another image', () => {
  const measurement = fail('receipt/measurement', 'measurement: 09 is not 0a')
  const launch = { ...sampleLaunch, vcpus: 3 }
  expect(becauseLines([imageCheck(sampleImage(), launch), measurement])).toEqual([
    'your manifest has no measurement for a VM of this shape (image: the manifest has no launch digest for ovmf/EPYC-v4/3)',
    'its measurement is none that you expect (measurement: measurement: 09 is not 0a)',
  ])
  const other = imageCheck(sampleImage(), { ...launch, kernelSha256: 'ff'.repeat(32) })
  for (const line of becauseLines([other, measurement])) expect(line).toStartWith('another image runs there than you')
})
