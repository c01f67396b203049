// Goal: each thing that failed has one line, in plain words and with the check and its reason.

import { expect, test } from 'bun:test'
import { fail, notChecked, pass } from '../../../src/attest/verdict.ts'
import { becauseLines } from '../../../src/client/verdict/because.ts'

test('goal: what failed and what is missing, without what is optional or passed', () => {
  expect(
    becauseLines([
      pass('a', 'x'),
      notChecked('b', 'optional', false),
      notChecked('c', 'missing', true),
      fail('own-key', 'another key'),
    ]),
  ).toEqual(['c: missing', 'it lets in an SSH key that is not yours (own-key: another key)'])
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
