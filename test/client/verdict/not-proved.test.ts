// Goal: whatever a relying party waived, or nothing was compared with, is said in plain words under a good verdict.

import { expect, test } from 'bun:test'
import { notChecked, pass } from '../../../src/attest/verdict.ts'
import { notProvedLines } from '../../../src/client/verdict/not-proved.ts'
import { EVERY_PIN } from '../../../src/verifier/pins.ts'

const open = (name: string, reason = 'r') => notChecked(name, reason, false)

test('goal: every pin that is waived has words of its own and its reason, before anything else', () => {
  for (const pin of EVERY_PIN) {
    const lines = notProvedLines([open('other'), open(`pin-${pin}`, 'you asked')], ['the limit'])
    expect([pin, lines.slice(1)]).toEqual([pin, ['other (r)', 'the limit']])
    expect(lines[0]).toMatch(/^(?!pin-).+ \(you asked\)$/)
  }
})

test('goal: a waiver covers the comparisons that it skips; without it they have lines', () => {
  expect(notProvedLines([open('pin-measurement'), open('receipt/measurement')], [])).toHaveLength(1)
  expect(
    notProvedLines([open('pin-allowlist'), open('gateway/allowlist'), open('gateway/admission')], []),
  ).toHaveLength(1)
  expect(notProvedLines([open('gateway/allowlist'), open('gateway/admission')], [])).toEqual([
    'which workload runs in it (r)',
  ])
})

test('goal: a firmware below a floor is named with its numbers, however many parts are', () => {
  expect(
    notProvedLines([open('receipt/tcb-floor-snp', 'snp 24'), open('receipt/tcb-floor-microcode', 'microcode 1')], []),
  ).toEqual(["that the firmware has AMD's security fixes (snp 24; microcode 1)"])
})

test('goal: the age of the list of fixes is said without words of the processor', () => {
  const age = open('tcb-floor-age', 'the TCB floors that this verifier ships are 188 days old')
  expect(notProvedLines([age], [])).toEqual([
    "that these are AMD's latest security fixes (the fixes that this program lists are 188 days old)",
  ])
})

test('goal: what passed, and remarks that the limits repeat, have no line; an unknown check keeps its name', () => {
  expect(
    notProvedLines(
      [
        pass('a', 'x'),
        open('scope'),
        open('operational-status'),
        open('image'),
        open('receipt/measurement'),
        open('z'),
      ],
      [],
    ),
  ).toEqual(['z (r)'])
})

test('goal: no more than twelve lines, and the last counts the others', () => {
  const lines = notProvedLines(
    Array.from({ length: 30 }, (_, at) => open(`check-${at}`)),
    ['the limit'],
  )
  expect([lines.length, lines.at(-1)]).toEqual([12, 'and 20 more; --verbose prints each check'])
})

test('goal: an image that only the transparency log names is not known for what it lets out', () => {
  const logged = pass('pin-measurement', 'in the transparency log, entry 3 of 9')
  const named = pass('pin-measurement', '1 measurement, named in the policy')
  expect(notProvedLines([logged, open('receipt/measurement')], ['the limit'])).toEqual([
    'what the image does and lets others read (you named no image; its log entry shows only that others can see it too)',
    'the limit',
  ])
  expect(notProvedLines([named, pass('log-included', 'entry 3')], ['the limit'])).toEqual(['the limit'])
})
