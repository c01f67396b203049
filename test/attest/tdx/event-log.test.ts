// Goal: a TD's event log replays to the registers that its quote has, and nothing but such a log is read.

import { expect, test } from 'bun:test'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { sha384 } from '../../../src/attest/hash.ts'
import { Malformed, parsed } from '../../../src/attest/malformed.ts'
import { decodeTdxEventLog, isTdxDataMeasured, replayRtmrs } from '../../../src/attest/tdx/event-log.ts'
import { eventLogCheck, eventPolicyCheck, parseTdxEventPolicy } from '../../../src/attest/tdx/event-policy.ts'
import { concat, toHex, utf8 } from '../../../src/base/bytes.ts'
import { ccelEvent, ccelHeader, ccelLog, u32 } from '../../rigs/attest/tdx/event-log.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

/** Random changes of a log; STRONGROOM_TDX_MUTATIONS=100000 takes minutes. */
const mutationCount = Number(process.env.STRONGROOM_TDX_MUTATIONS ?? 600)
const cos = new Uint8Array(await Bun.file(new URL('../../vectors/tdx/cos-113.ccel.bin', import.meta.url)).arrayBuffer())

test('goal: the log of a TD on Google Cloud replays to the registers that its source publishes', () => {
  const events = decodeTdxEventLog(cos)
  expect(events).toHaveLength(43)
  expect(replayRtmrs(events).map(toHex)).toEqual([
    '3fa2f61f395b7f5feefb4ec2df61297f109ad8abcd6410c1b7df60f21f37b19297fc35e544039c7e1edece752afd17f6',
    'f62dbc072bd5d3f3438b7b35c39a727f5aea2ffc2473f43723953f530daf62504f0a7944aa62c41a86e8a878c2b122c1',
    '4969684dc87381fc3b3134176c8d8806eaf0a901859f5f70cfae8d17714b46c10a8de219048c9fc09f11f381a6fbe7c1',
    '00'.repeat(48),
  ])
  expect(events.filter(isTdxDataMeasured)).toHaveLength(13)
})

test('goal: an event policy accepts the events of a log once each, in their order, and real logs can be written as one', () => {
  const events = decodeTdxEventLog(cos)
  const judge = (log: typeof events, change: (rtmr0: string[][]) => string[][] = same => same) => {
    const digests = (rtmr: number) => events.filter(event => event.rtmr === rtmr).map(({ digest }) => [toHex(digest)])
    const lists = { rtmr0: change(digests(0)), rtmr1: digests(1), rtmr2: digests(2), rtmr3: 'any' }
    const policy = parseTdxEventPolicy(JSON.stringify({ format: 'strongroom/tdx-events/v1', ...lists }))
    return eventPolicyCheck(policy, log, replayRtmrs(log))
  }
  expect(judge(events)).toMatchObject({ outcome: 'pass' })
  const last = events.findLast(({ rtmr }) => rtmr === 0)
  const [first, second, ...more] = events.filter(({ rtmr }) => rtmr === 0)
  if (last === undefined || first === undefined || second === undefined) throw new Error('no such events')
  const [a, b, z] = [first, second, last].map(({ digest }) => toHex(digest))
  const others = events.filter(({ rtmr }) => rtmr !== 0)
  const number = more.length + 3
  for (const [log, reason] of [
    [[...events, last], `RTMR 0: event ${number}, ${z}, is not named`],
    [[...others, second, first, ...more], `RTMR 0: event 1, ${b}, is not among those named there, as ${a}`],
    [[...others, second, ...more], `RTMR 0: event 1, ${b}, is not among those named there, as ${a}`],
    [[...others, first, second, ...more.slice(0, -1)], `RTMR 0: event ${number - 1}, as ${z}, is missing`],
  ] as const) {
    expect(judge(log)).toMatchObject({ outcome: 'fail', reason })
  }
  // Exactly one alternative extends the register.
  const alternatives = ([left = [], right = [], ...rest]: string[][]) => [[...left, ...right], ...rest]
  expect(judge(events, alternatives).outcome).toBe('fail')
  expect(judge([...others, first, ...more], alternatives).outcome).toBe('pass')
  expect(judge([...others, second, ...more], alternatives).outcome).toBe('pass')
  // An event that extends a register twice is named twice.
  expect(judge([...events, last], all => [...all, ...all.slice(-1)]).outcome).toBe('pass')
})

const firmware = { index: 1, data: 'firmware' }
const kernel = { index: 2, data: 'kernel' }

test('goal: index 1 to 4 is RTMR 0 to 3, in the order of the log; no register has what is informational', () => {
  const first = sha384(concat(new Uint8Array(48), sha384(utf8('kernel'))))
  const second = sha384(concat(first, sha384(utf8('initrd'))))
  const log = ccelLog(
    kernel,
    { index: 0, data: 'note', type: 3 },
    { index: 2, data: 'initrd' },
    { index: 4, data: 'late' },
  )
  const events = decodeTdxEventLog(log)
  expect(events.map(({ rtmr }) => rtmr)).toEqual([1, 1, 3])
  const late = sha384(concat(new Uint8Array(48), sha384(utf8('late'))))
  expect(replayRtmrs(events)).toEqual([new Uint8Array(48), second, new Uint8Array(48), late])
})

test('goal: unused space at the end is no event, and anything else there is refused', () => {
  for (const filler of [0, 0xff]) {
    expect(decodeTdxEventLog(concat(ccelLog(firmware), new Uint8Array(1000).fill(filler)))).toHaveLength(1)
    const broken = concat(ccelLog(firmware), new Uint8Array(1000).fill(filler), Uint8Array.of(7))
    expect(() => decodeTdxEventLog(broken)).toThrow(Malformed)
  }
})

test('goal: other logs are refused, and the message says why', () => {
  const event = ccelEvent(firmware)
  const cases: readonly (readonly [Uint8Array, string])[] = [
    [new Uint8Array(0), 'truncated'],
    [concat(u32(1), u32(4), new Uint8Array(64)), 'does not begin with a Spec ID event'],
    [concat(u32(1), u32(3), new Uint8Array(20).with(3, 1), new Uint8Array(64)), 'with a digest'],
    [concat(ccelHeader(Uint8Array.of(0x0b, 0, 32, 0)), event), 'other digests than SHA-384'],
    [concat(ccelHeader(Uint8Array.of(0x0c, 0, 48, 0, 0x0b, 0, 32, 0), 2), event), 'other digests than SHA-384'],
    [concat(ccelHeader(), event.slice(0, -1)), 'truncated'],
    [concat(ccelHeader(), event.with(8, 2)), 'exactly one SHA-384 digest'],
    [concat(ccelHeader(), event.with(12, 0x0b)), 'exactly one SHA-384 digest'],
    [ccelLog({ index: 0, data: 'MRTD' }), 'register 0, which is no RTMR'],
    [ccelLog({ index: 5, data: 'none' }), 'register 5, which is no RTMR'],
    [new Uint8Array(4 * 1024 * 1024 + 1), 'at most 4194304'],
    [
      concat(ccelHeader(), ...Array.from({ length: 16_385 }, () => ccelEvent({ index: 1, data: '' }))),
      'more than 16384',
    ],
  ]
  for (const [bytes, words] of cases) expect(() => decodeTdxEventLog(bytes)).toThrow(words)
})

test('goal: hostile bytes give Malformed and nothing else, and what is read can be replayed', async () => {
  const samples = [
    cos.slice(0, 2000),
    ccelLog(firmware, kernel),
    concat(ccelLog(firmware), new Uint8Array(64).fill(0xff)),
  ]
  await fuzz({ samples, count: 2000 }, bytes => {
    try {
      expect(replayRtmrs(decodeTdxEventLog(bytes))).toHaveLength(4)
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
    }
  })
})

test('goal: a log that changed is accepted with the same digests alone, and shows no other data as measured', () => {
  const events = decodeTdxEventLog(cos)
  const quoted = replayRtmrs(events)
  const digests = (rtmr: number) => events.filter(event => event.rtmr === rtmr).map(({ digest }) => [toHex(digest)])
  const lists = { rtmr0: digests(0), rtmr1: digests(1), rtmr2: digests(2), rtmr3: 'any' }
  const policy = parseTdxEventPolicy(JSON.stringify({ format: 'strongroom/tdx-events/v1', ...lists }))
  const measured = (log: typeof events) => log.map(({ rtmr, digest }) => `${rtmr} ${toHex(digest)}`)
  const draw = createDraw(52)
  const counts = { malformed: 0, refused: 0, accepted: 0 }
  for (let round = 0; round < mutationCount; round += 1) {
    const changed = cos.slice(0, draw(20) === 0 ? draw(cos.length) : cos.length)
    for (let left = 1 + draw(2); left > 0 && changed.length > 0; left -= 1) changed[draw(changed.length)] = draw(256)
    const read = parsed(() => decodeTdxEventLog(changed))
    if (!read.ok) {
      counts.malformed += 1
      continue
    }
    const checks = [eventLogCheck(read.value, quoted), eventPolicyCheck(policy, read.value, quoted)]
    if (checks.some(({ outcome }) => outcome !== 'pass')) {
      counts.refused += 1
      continue
    }
    counts.accepted += 1
    expect([round, measured(read.value)]).toEqual([round, measured(events)])
    for (const [at, event] of read.value.entries()) {
      if (isTdxDataMeasured(event))
        expect([round, at, event.data]).toEqual([round, at, events[at]?.data ?? new Uint8Array()])
    }
  }
  expect(Math.min(...Object.values(counts))).toBeGreaterThan(5)
})
