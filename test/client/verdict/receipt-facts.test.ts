// Goal: who can read a VM is never said better than its evidence: not for an unknown image, an open debugger, or a
// simulated processor.

import { describe, expect, test } from 'bun:test'
import type { SnpReport } from '../../../src/attest/report/report.ts'
import { notChecked, pass } from '../../../src/attest/verdict.ts'
import {
  hardwareFacts,
  launchFacts,
  type ReceiptFacts,
  readerFacts,
} from '../../../src/client/verdict/receipt-facts.ts'

const report = {
  policy: 0x30000n,
  cpuid: { family: 0x19, model: 0x11, stepping: 1 },
  rawTcb: { reported: 0x58_1b_00_00_00_00_00_00n },
  measurement: new Uint8Array(48).fill(9),
  idKeyDigest: new Uint8Array(48).fill(4),
} as unknown as SnpReport

const pinned = pass('pin-measurement', '1 measurement, named in the policy')
const facts: ReceiptFacts = {
  report,
  image: 'instance',
  operatorKey: new Uint8Array(48).fill(4),
  simulated: false,
  isOwnImage: true,
  checks: [pinned],
  sources: ['policy.json'],
}
const textOf = (found: readonly (readonly [string, string])[]) => found.map(([label, text]) => `${label}: ${text}`)

describe('who can read it', () => {
  test('goal: of an expected image nobody, by encryption, and debugger and migration are off', () => {
    expect(textOf(readerFacts(facts, ['besides, x']))).toEqual([
      'read by: only what runs inside: the processor encrypts the memory, the disk has a key that exists only there, and neither its host nor the operator can read them',
      'read by: debugger and migration, by which a host could read the memory, are off',
      'read by: besides, x',
    ])
  })

  test('goal: of an image of other people nothing is said about its disk', () => {
    const [first] = textOf(readerFacts({ ...facts, isOwnImage: false }))
    expect(first).toStartWith('read by: only what runs inside: the processor encrypts the memory, and neither')
    expect(first).not.toContain('disk')
  })

  // Goal: each way in is named, and the words about encryption are not there.
  test.each<readonly [string, Partial<ReceiptFacts>, string]>([
    ['a simulated processor', { simulated: true }, 'its host and the operator, all of it'],
    ['an unknown image', { checks: [notChecked('pin-measurement', 'any', false)] }, 'unknown: the image decides'],
    [
      'an image that only the log names',
      { checks: [pass('pin-measurement', 'in the transparency log, entry 3 of 9')], sources: [] },
      'unknown: the image decides that, and its entry in the transparency log shows only that others can see it too',
    ],
    ['no report', { report: null }, 'unknown: there is no report'],
    ['an open debugger', { report: { ...report, policy: 0xb0000n } }, 'the debugger is ON'],
    ['a migration agent', { report: { ...report, policy: 0x70000n } }, 'migration is ON'],
  ])('%s', (_, changes, words) => {
    const text = textOf(readerFacts({ ...facts, ...changes })).join('\n')
    expect(text).toContain(words)
    expect(text).not.toContain('only what runs inside')
  })
})

describe('what runs, and who started it', () => {
  test('goal: image, measurement and where it was named', () => {
    const keyed = [pinned, pass('id-key-digest')]
    expect(textOf(launchFacts({ ...facts, checks: keyed, sources: ['policy.json', 'manifest.json'] }))).toEqual([
      'runs: image instance, measurement 090909090909…, as named by policy.json and manifest.json',
      'started by: the operator whose key you pinned, 040404040404…',
    ])
  })

  test('goal: what was not pinned is said, and so is a launch that nobody signed', () => {
    const open = { ...facts, checks: [notChecked('pin-measurement', 'any', false)] }
    expect(textOf(launchFacts(open))).toEqual([
      'runs: image instance, measurement 090909090909…; no expected one was named',
      'started by: an operator whose key you did not pin, 040404040404…',
    ])
    const [, unsigned] = textOf(launchFacts({ ...open, operatorKey: new Uint8Array(48) }))
    expect(unsigned).toContain('no operator key signed the launch')
  })

  test('goal: of a pinned author key alone that key is shown as pinned, and not the key that it signed', () => {
    const authorKeyDigest = new Uint8Array(48).fill(7)
    const startedBy = (checks: ReceiptFacts['checks'], changes: Partial<SnpReport> = { authorKeyDigest }) =>
      textOf(launchFacts({ ...facts, report: { ...report, ...changes }, checks: [pinned, ...checks] }))[1]
    const open = notChecked('id-key-digest', "the policy has 'any'", false)
    expect(startedBy([open, pass('author-key-digest')])).toBe(
      'started by: the operator whose author key you pinned, 070707070707…; it signed the key of this launch, 040404040404…',
    )
    expect(startedBy([pass('id-key-digest'), pass('author-key-digest')])).toBe(
      'started by: the operator whose key you pinned, 040404040404…',
    )
    // A policy that requires that there is no author key names no operator.
    expect(startedBy([open, pass('author-key-digest')], { authorKeyDigest: new Uint8Array(48) })).toBe(
      'started by: an operator whose key you did not pin, 040404040404…',
    )
  })

  test('goal: a name that an unknown image gave itself is no fact beside it', () => {
    const [runs] = textOf(launchFacts({ ...facts, image: 'instance, measurement 0a0b, as named by policy.json' }))
    expect(runs).toStartWith('runs: image "instance,\\u0020measurement\\u00200a0b,')
  })

  test('goal: a place in the transparency log is named', () => {
    const logged = [pass('pin-measurement', 'in the transparency log, entry 1 of 2'), pass('log-included', 'entry 1')]
    const [runs, log] = textOf(launchFacts({ ...facts, checks: logged, sources: [] }))
    expect([runs?.endsWith(', in the transparency log, entry 1 of 2'), log]).toEqual([
      true,
      'runs: in the transparency log: entry 1',
    ])
  })
})

describe('hardware and firmware', () => {
  const floor = pass('tcb-floor-snp', 'snp 27')

  test('goal: processor, versions, and whether they have the fixes', () => {
    expect(textOf(hardwareFacts({ ...facts, checks: [floor] }))).toEqual([
      'hardware: AMD EPYC Genoa with SEV-SNP',
      expect.stringMatching(/^hardware: firmware 27, microcode 88: no older than AMD's security fixes known on 20/),
    ])
    const below = notChecked('tcb-floor-microcode', 'waived', false)
    const [, waived] = textOf(hardwareFacts({ ...facts, checks: [floor, below] }))
    expect(waived).toEndWith(", not shown to have all of AMD's security fixes")
    const [, open] = textOf(hardwareFacts({ ...facts, checks: [] }))
    expect(open).toEndWith(", not compared with AMD's security fixes")
  })

  test('goal: a simulated one is none', () => {
    expect(textOf(hardwareFacts({ ...facts, simulated: true }))[0]).toStartWith('hardware: none: SIMULATED')
  })

  test('goal: GPUs that were judged are named', () => {
    expect(textOf(hardwareFacts({ ...facts, checks: [pass('gpu-evidence', 'H100')] }))).toContain(
      'hardware: GPUs: H100',
    )
  })
})
