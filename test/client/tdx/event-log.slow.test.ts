// Goal: `verify tdx --event-log` accepts exactly the log that replays to the quote's registers, and --events exactly
// the events that a relying party names.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { sha384 } from '../../../src/attest/hash.ts'
import { encodeTdxPolicy, strictTdxPolicy } from '../../../src/attest/tdx/encode-policy.ts'
import { concat, toHex, utf8 } from '../../../src/base/bytes.ts'
import { ccelLog, type SimulatedEvent } from '../../rigs/attest/tdx/event-log.ts'
import {
  SIMULATED_PCK,
  SIMULATED_REPORT,
  simulateCollateral,
  simulateQuote,
  simulateTdx,
} from '../../rigs/attest/tdx/simulated.ts'
import { checksOf, expectUsageError, runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-tdx-events-'))
afterAll(() => rmSync(dir, { recursive: true }))

let files = 0

function file(name: string, contents: Uint8Array | string): string {
  files += 1
  const path = join(dir, `${files}-${name}`)
  writeFileSync(path, contents)
  return path
}

const zeros: Uint8Array = new Uint8Array(48)
const digest = (data: string) => sha384(utf8(data))
const extended = (...data: readonly string[]) => data.reduce((rtmr, text) => sha384(concat(rtmr, digest(text))), zeros)
const kernel: SimulatedEvent = { index: 2, data: 'kernel' }
const cmdline: SimulatedEvent = { index: 3, data: 'cmdline' }
const initrd: SimulatedEvent = { index: 3, data: 'initrd' }

const platform = await simulateTdx(Date.parse('2026-01-01T00:00:00Z'))
const pck = await platform.pck(SIMULATED_PCK)
const report = { ...SIMULATED_REPORT, rtmr1: extended('kernel'), rtmr2: extended('cmdline', 'initrd') }
const quote = file('quote.bin', await simulateQuote(platform, { version: 4, report, pck }))
const policy = { ...encodeTdxPolicy(strictTdxPolicy()), mrTds: [toHex(report.mrTd)] }
const base = [
  ...['verify', 'tdx', quote, '--as-of', '2026-01-01', '--policy', file('policy.json', JSON.stringify(policy))],
  ...['--collateral', file('collateral.json', await simulateCollateral(platform))],
  ...['--trust-simulated-root', file('root.pem', toPem(platform.rootDer, 'CERTIFICATE'))],
]
const log = (...events: readonly SimulatedEvent[]) => ['--event-log', file('log.bin', ccelLog(...events))]
const named = (changes: object) => {
  const any = { rtmr0: 'any', rtmr1: 'any', rtmr2: 'any', rtmr3: 'any' }
  return ['--events', file('events.json', JSON.stringify({ format: 'strongroom/tdx-events/v1', ...any, ...changes }))]
}
const hex = (...data: readonly string[]) => data.map(text => toHex(digest(text)))
const all = { rtmr1: [hex('other kernel', 'kernel')], rtmr2: [hex('cmdline'), hex('initrd')] }

async function judged(...more: readonly string[]) {
  const { code, stdout } = await runHere([...base, ...more, '--json'])
  const document = JSON.parse(stdout)
  return { code, document, failed: checksOf(document, 'FAIL') }
}

test('goal: events that are named, of alternatives one, stand for RTMR 1 and 2; the document has them', async () => {
  const good = await judged(...log(kernel, cmdline, initrd), ...named(all))
  expect([good.code, good.failed, checksOf(good.document, 'PASS')]).toEqual([
    ...[0, [], expect.arrayContaining(['event-log', 'event-policy', 'pin-rtmr'])],
  ])
  expect(good.document.event_log.events).toEqual(
    [kernel, cmdline, initrd].map(({ index, data }) => ({
      ...{ rtmr: index - 1, type: '0xd', digest: toHex(digest(data)), data: toHex(utf8(data)) },
    })),
  )
})

test('goal: a log of other events, in another order or without one is not genuine, and proves no event', async () => {
  for (const events of [
    [cmdline, initrd],
    [kernel, initrd, cmdline],
    [kernel, cmdline],
    [kernel, cmdline, initrd, { index: 4, data: 'late' }],
    [{ ...kernel, data: 'evil' }, cmdline, initrd],
  ]) {
    const { code, failed, document } = await judged(...log(...events), '--any-rtmr')
    const isPart = events.length === 2 && events[0] === cmdline
    expect([events, code, failed]).toEqual([events, isPart ? 0 : 1, isPart ? [] : ['event-log']])
    expect(document.event_log.events).toHaveLength(isPart ? 2 : 0)
  }
  expect((await judged(...log(), '--any-rtmr')).failed).toEqual(['event-log'])
  // The data of this event are not those that its digest is of.
  const lying = { ...kernel, data: 'nicer', digest: digest('kernel') }
  const { document } = await judged(...log(lying, cmdline, initrd), '--any-rtmr')
  expect(document.event_log.events[0]).toMatchObject({ digest: toHex(digest('kernel')), data: null })
})

test('goal: an event that is not named, or is named and missing, or a register without its log is refused', async () => {
  const whole = log(kernel, cmdline, initrd)
  for (const [argv, words] of [
    [[...whole, ...named({ ...all, rtmr2: [hex('cmdline')] })], `RTMR 2: event 2, ${hex('initrd')[0]}, is not named`],
    [
      [...whole, ...named({ ...all, rtmr1: [hex('kernel'), hex('module')] })],
      `event 2, as ${hex('module')[0]}, is missing`,
    ],
    [[...log(cmdline, initrd), ...named(all)], 'the log does not replay to RTMR 1'],
  ] as const) {
    const { code, failed, document } = await judged(...argv)
    expect([words, code, failed]).toEqual([words, 6, ['event-policy']])
    const { reason } = document.checks.find(({ name }: { name: string }) => name === 'event-policy')
    expect(reason).toContain(words)
  }
})

test('goal: a log without named events, or with those of one register, does not stand for RTMR 1 and 2', async () => {
  const whole = log(kernel, cmdline, initrd)
  expect((await judged(...whole)).failed).toEqual(['pin-rtmr'])
  expect((await judged(...whole, ...named({ rtmr1: all.rtmr1 }))).failed).toEqual(['pin-rtmr'])
  expect((await judged(...whole, ...named({}))).failed).toEqual(['pin-rtmr'])
})

// Goal: a file that cannot be read is named, with the field.
test('usage', async () => {
  await expectUsageError([...base, ...named(all)], 'required option --event-log is missing')
  await expectUsageError([...base, '--event-log', file('none', 'none')], 'TDX event log')
  await expectUsageError([...base, ...log(kernel), ...named({ rtmr1: [['00']] })], 'events.rtmr1[0][0]')
  await expectUsageError([...base, ...log(kernel), ...named({ rtmr1: [] })], 'events.rtmr1: not a list')
})
