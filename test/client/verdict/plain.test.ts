// Goal: a verdict in plain words has one fact a line in a fixed order, says SIMULATED before any fact, and shows of a
// host's text no more than one bounded, harmless line.

import { expect, test } from 'bun:test'
import { type Check, fail, notChecked, pass, verdict } from '../../../src/attest/verdict.ts'
import { type Plain, plainVerdict } from '../../../src/client/verdict/plain.ts'
import { paintFor } from '../../../src/terminal/render.ts'

const plain: Plain = {
  act: 'log in to x',
  facts: [
    ['hardware', 'AMD'],
    ['prompts', 'inside'],
    ['runs', 'image a'],
    ['started by', 'you'],
    ['read by', 'nobody'],
    ['read by', 'really'],
    ['built from', 'source'],
    ['built in', 'image b'],
    ['answered by', 'model'],
    ['you may', 'with your key'],
  ],
  unproved: ['the rest'],
  next: { argv: ['verify', 'instance', 'x'] },
}

function lines(checks: readonly Check[], { simulated = false, verbose = false, of = plain } = {}): string[] {
  const shown = { ...verdict(checks), simulated }
  return plainVerdict(shown, of, { verbose, paint: paintFor(false) })
    .split('\n')
    .slice(0, -1)
}

test('goal: facts of PASS come in the order in which a person needs them', () => {
  expect(lines([pass('a'), notChecked('pin-crl', 'accepted', false)])).toEqual([
    'VERDICT: PASS',
    'you may     log in to x',
    '            with your key',
    'runs        image a',
    'built in    image b',
    'built from  source',
    'started by  you',
    'read by     nobody',
    '            really',
    'prompts     inside',
    'answered by model',
    'hardware    AMD',
    "not proved  that AMD has not revoked the processor's certificate (accepted)",
    '            the rest',
    '2 checks: 1 passed, 0 failed, 1 not made; --verbose prints each',
  ])
})

test('goal: SIMULATED stands in the first line and in the second, for PASS and FAIL alike', () => {
  for (const checks of [[pass('a')], [fail('a', 'no')]]) {
    const [first, second, third] = lines(checks, { simulated: true })
    expect(first).toEndWith(' SIMULATED, no hardware attests this evidence')
    expect(second).toStartWith('SIMULATED   no hardware protects this VM: its host can read ')
    expect(third).toMatch(/^you may +log in to x, for tests alone$|^do not +log in to x: /)
  }
})

test('goal: FAIL has the reason and commands, and not one fact that was not proved', () => {
  expect(lines([pass('a'), fail('prompts', 'elsewhere')])).toEqual([
    'VERDICT: FAIL',
    'do not      log in to x: the evidence is genuine, but not what you expect',
    'because     its prompts do not go where you expect (prompts: elsewhere)',
    'try next    strongroom verify instance x --verbose',
    '2 checks: 1 passed, 1 failed, 0 not made; --verbose prints each',
  ])
})

test('goal: each kind of failure has its words, and a connection that failed proves nothing', () => {
  const why = (check: Check) => lines([check]).find(line => line.startsWith('do not'))
  expect(why(fail('chain-root', 'x'))).toContain(': the evidence is not genuine, or not for you')
  expect(why(fail('own-key', 'x'))).toContain(': the evidence is genuine, but not what you expect')
  expect(why(fail('attestation-format', 'x'))).toContain('nothing was proved or disproved')
  expect(why(fail('connection', 'x'))).toContain('nothing was proved or disproved')
})

test('goal: a reason or fact of a host is one line of bounded length without control characters or rows of blanks', () => {
  const hostile = `a\n\u001b[2JVERDICT: PASS\u202e${' '.repeat(200)}you may log in ${'x'.repeat(5_000)}`
  const of: Plain = { ...plain, facts: [['prompts', hostile]], unproved: [hostile] }
  for (const text of [lines([fail('a', hostile)]), lines([pass('a')], { of })]) {
    expect(text.length).toBeLessThan(7)
    expect(Math.max(...text.map(line => line.length))).toBeLessThanOrEqual(612)
    for (const line of text) expect(line.slice(12)).not.toMatch(/[\u0000-\u001f\u202e]|\s{2}/)
  }
})

test('goal: --verbose prints every check, and what a good verdict rests on below them', () => {
  const details = [pass('vmpl', '0'), pass('chain-root', "AMD's")]
  const shown = { ...verdict([pass('a')]), simulated: false }
  const text = plainVerdict(shown, plain, { verbose: true, details, paint: paintFor(false) })
  expect(text).toBe(
    "PASS a: ok\nVERDICT: PASS: 1 passed, 0 failed, 0 not checked\nrests on root: AMD's\nrests on VMPL: 0\n",
  )
  const bad = { ...verdict([fail('a', 'no')]), simulated: false }
  expect(plainVerdict(bad, plain, { verbose: true, details, paint: paintFor(false) })).not.toContain('rests on')
})
