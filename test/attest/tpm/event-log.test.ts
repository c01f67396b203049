// Event logs: reading, replaying, refusing.

import { describe, expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { BANKS } from '../../../src/attest/tpm/algorithm.ts'
import { decodeEventLog, type LogEvent } from '../../../src/attest/tpm/event-log.ts'
import { isDataMeasured, replayEventLog, verifyEventLog } from '../../../src/attest/tpm/event-log-verify.ts'
import { concat, fromHex, toHex, utf8 } from '../../../src/base/bytes.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const vectors = new URL('../../vectors/tpm/', import.meta.url)
const logNames = ['rhel8-uefi.bin', 'ubuntu-2404-amd-sevsnp.bin'] as const

type ExpectedPcrs = Record<string, { expected_pcrs: Record<'sha1' | 'sha256', Record<string, string>> }>
const expectedPcrs = (await Bun.file(new URL('expected-pcrs.json', vectors)).json()) as ExpectedPcrs

async function logBytes(name: string): Promise<Uint8Array> {
  return new Uint8Array(await Bun.file(new URL(name, vectors)).arrayBuffer())
}

const ubuntu = await logBytes('ubuntu-2404-amd-sevsnp.bin')

function u16(value: number): Uint8Array {
  return Uint8Array.of(value & 0xff, value >> 8)
}

function u32(value: number): Uint8Array {
  return concat(u16(value & 0xffff), u16(value >>> 16))
}

type Algorithm = readonly [id: number, sizeBytes: number]
const sha256Only: readonly Algorithm[] = [[0x000b, 32]]

/** TCG_PCClientPCREvent with a Spec ID event, section 10.4.5.1. */
function header(algorithms = sha256Only, signature = 'Spec ID Event03\0', vendor = new Uint8Array(0)): Uint8Array {
  const list = algorithms.map(([id, size]) => concat(u16(id), u16(size)))
  const body = concat(
    utf8(signature),
    u32(0),
    Uint8Array.of(0, 2, 0, 2),
    u32(algorithms.length),
    ...list,
    Uint8Array.of(vendor.length),
    vendor,
  )
  return concat(u32(0), u32(3), new Uint8Array(20), u32(body.length), body)
}

function event(pcr: number, type: number, data: Uint8Array, digest?: Uint8Array): Uint8Array {
  const digests = concat(u32(1), u16(0x000b), digest ?? BANKS['SHA-256'].hash(data))
  return concat(u32(pcr), u32(type), digests, u32(data.length), data)
}

function locality(value: number, pcr = 0): Uint8Array {
  return event(pcr, 3, concat(utf8('StartupLocality\0'), Uint8Array.of(value)), new Uint8Array(32))
}

const { hash } = BANKS['SHA-256']
const separator = event(0, 4, new Uint8Array(4))
const extended = (first: Uint8Array) => hash(concat(first, hash(new Uint8Array(4))))

describe('real logs', () => {
  test.each(logNames)('%s replays to its PCRs', async name => {
    // Goal: every bank's replay gives exactly the PCRs of the machine that wrote the log.
    const log = decodeEventLog(await logBytes(name))
    expect(log.banks).toEqual(['SHA-1', 'SHA-256', 'SHA-384'])
    for (const [bank, key] of [
      ['SHA-1', 'sha1'],
      ['SHA-256', 'sha256'],
    ] as const) {
      const replayed = Object.fromEntries([...replayEventLog(log, bank)].map(([pcr, value]) => [pcr, toHex(value)]))
      expect(replayed).toEqual(expectedPcrs[name]?.expected_pcrs[key] ?? {})
      expect(Object.keys(replayed).length).toBeGreaterThan(9)
    }
    const long = replayEventLog(log, 'SHA-384')
    expect([...long.values()].every(value => value.length === 48)).toBe(true)
    expect(() => replayEventLog(log, 'SHA-512')).toThrow(Malformed)
  })

  test('a flipped digest gives another PCR', () => {
    // Goal: the replay depends on every digest of the bank, in its order, and on no other bank.
    const log = decodeEventLog(ubuntu)
    const change = (bank: 'SHA-1' | 'SHA-256', at: number): LogEvent[] =>
      log.events.map((event, i) => {
        const digest = event.digests.get(bank) ?? new Uint8Array(0)
        const flipped = digest.map((byte, j) => (j === 3 ? byte ^ 1 : byte))
        return i === at ? { ...event, digests: new Map([...event.digests, [bank, flipped]]) } : event
      })
    const good = replayEventLog(log, 'SHA-256')
    for (const [at, { pcr }] of log.events.entries()) {
      const replayed = replayEventLog({ ...log, events: change('SHA-256', at) }, 'SHA-256')
      const different = [...good].filter(([item, value]) => toHex(replayed.get(item) ?? value) !== toHex(value))
      expect(different.map(([value]) => value)).toEqual([pcr])
      expect(replayEventLog({ ...log, events: change('SHA-1', at) }, 'SHA-256')).toEqual(good)
    }
    const swapped = replayEventLog({ ...log, events: log.events.toReversed() }, 'SHA-256')
    expect(swapped.get(4)).not.toEqual(good.get(4))
  })

  test('what was measured of an event’s data', () => {
    // Goal: data that hash to the digest differ from data that merely stand in the log.
    const { events } = decodeEventLog(ubuntu)
    const separators = events.filter(event => event.type === 4)
    expect(separators.length).toBeGreaterThan(5)
    expect(
      separators.every(separator => isDataMeasured(separator, 'SHA-256') && isDataMeasured(separator, 'SHA-384')),
    ).toBe(true)
    const lying = separators.map(separator => ({ ...separator, data: Uint8Array.of(1) }))
    expect(lying.some(item => isDataMeasured(item, 'SHA-256'))).toBe(false)
    expect(separators.some(separator => isDataMeasured({ ...separator, type: 3 }, 'SHA-256'))).toBe(false)
  })
})

describe('first values', () => {
  test('the startup locality is PCR 0’s first value', () => {
    // Goal: localities 0, 3 and 4 are taken into account, once, before the first extension, for PCR 0 alone.
    for (const value of [0, 3, 4]) {
      const log = decodeEventLog(concat(header(), locality(value), separator, event(1, 4, new Uint8Array(4))))
      expect(log.startupLocality).toBe(value)
      const first = new Uint8Array(32)
      const pcrs = replayEventLog(log, 'SHA-256')
      expect(toHex(pcrs.get(1) ?? first)).toBe(toHex(extended(first)))
      first[31] = value
      expect(toHex(pcrs.get(0) ?? first)).toBe(toHex(extended(first)))
    }
    expect(() => decodeEventLog(concat(header(), locality(1)))).toThrow('StartupLocality')
    expect(() => decodeEventLog(concat(header(), locality(3), locality(3)))).toThrow('StartupLocality')
    expect(() => decodeEventLog(concat(header(), separator, locality(3)))).toThrow('StartupLocality')
    const long = event(0, 3, concat(utf8('StartupLocality\0'), Uint8Array.of(3, 0)), new Uint8Array(32))
    expect(() => decodeEventLog(concat(header(), long))).toThrow('StartupLocality')
    // The words mean nothing in another PCR or another type.
    expect(decodeEventLog(concat(header(), locality(3, 1))).startupLocality).toBe(0)
    const typed = event(0, 5, concat(utf8('StartupLocality\0'), Uint8Array.of(3)))
    expect(decodeEventLog(concat(header(), typed)).startupLocality).toBe(0)
  })

  test('remarks are not extended', () => {
    // Goal: an EV_NO_ACTION event changes no PCR, whatever digest it bears and whatever PCR it names.
    const remark = event(2, 3, utf8('anything'), new Uint8Array(32).fill(9))
    const nowhere = event(0xffffffff, 3, utf8('anything'), new Uint8Array(32))
    const log = decodeEventLog(concat(header(), remark, nowhere, separator))
    expect([...replayEventLog(log, 'SHA-256').keys()]).toEqual([0])
    expect(log.events).toHaveLength(3)
  })

  test('dynamic PCRs begin with all ones', () => {
    // Goal: PCRs 17 to 22 start as the TPM profile says; the debug PCR 16 and 23 start with zeros.
    const log = decodeEventLog(concat(header(), ...[16, 17, 22, 23].map(pcr => event(pcr, 4, new Uint8Array(4)))))
    const pcrs = replayEventLog(log, 'SHA-256')
    for (const [pcr, fill] of [
      [16, 0],
      [17, 0xff],
      [22, 0xff],
      [23, 0],
    ] as const)
      expect(toHex(pcrs.get(pcr) ?? new Uint8Array(0))).toBe(toHex(extended(new Uint8Array(32).fill(fill))))
  })
})

describe('logs that are refused', () => {
  const oldEvent = concat(u32(0), u32(8), new Uint8Array(20), u32(4), new Uint8Array(4))

  // Goal: nothing but a whole crypto-agile log of known banks is read; an old one is named as such.
  test.each<[string, Uint8Array, string]>([
    ['nothing', new Uint8Array(0), 'truncated'],
    ['the old format', concat(oldEvent, oldEvent), 'SHA-1 alone'],
    ['the old format with its own Spec ID event', header(sha256Only, 'Spec ID Event02\0'), 'SHA-1 alone'],
    [
      'a Spec ID event that is too short',
      concat(u32(0), u32(3), new Uint8Array(20), u32(4), new Uint8Array(4)),
      'SHA-1',
    ],
    ['a Spec ID event with a digest', concat(u32(0), u32(3), new Uint8Array(20).fill(1), u32(0)), 'with a digest'],
    ['no banks', header([]), 'number of banks'],
    ['an unknown bank', header([[0x0012, 32]]), 'unknown bank'],
    ['a bank twice', header([...sha256Only, ...sha256Only]), 'one twice'],
    ['a wrong digest size', header([[0x000b, 20]]), 'digest size'],
    ['many banks', header(Array(5).fill([0x000b, 32])), 'number of banks'],
    ['a PCR that is none', concat(header(), event(24, 4, new Uint8Array(4))), 'no such PCR'],
    ['an extension of no PCR', concat(header(), event(0xffffffff, 4, new Uint8Array(4))), 'no such PCR'],
    ['an event without digests', concat(header(), u32(0), u32(4), u32(0), u32(0)), 'digest for each bank'],
    ['an event with many digests', concat(header(), u32(0), u32(4), u32(0xffffffff)), 'digest for each bank'],
    ['a digest of another bank', concat(header(), u32(0), u32(4), u32(1), u16(4), new Uint8Array(24)), 'another bank'],
    ['data that are not there', concat(header(), separator.slice(0, -8), u32(0xffffffff)), 'truncated'],
    ['padding', concat(header(), separator, new Uint8Array(64)), 'digest for each bank'],
    ['padding of ones', concat(header(), separator, new Uint8Array(64).fill(0xff)), 'no such PCR'],
    ['a log beyond its bound', new Uint8Array(4 * 1024 * 1024 + 1), 'too long'],
  ])('%s', (_what, bytes, reason) => {
    expect(() => decodeEventLog(bytes)).toThrow(Malformed)
    expect(() => decodeEventLog(bytes)).toThrow(reason)
    const check = verifyEventLog({
      log: bytes,
      bank: 'SHA-256',
      pcrs: { 'SHA-256': new Map([[0, new Uint8Array(32)]]) },
      answersFor: 'all',
    })
    expect(check).toMatchObject({ name: 'tpm-event-log', outcome: 'fail' })
  })

  test('too many events', () => {
    // Goal: the number of events is bounded, not only their bytes.
    const small = event(0, 4, new Uint8Array(0))
    const bytes = concat(header(), ...Array<Uint8Array>(16_385).fill(small))
    expect(() => decodeEventLog(bytes)).toThrow('too many events')
    expect(decodeEventLog(bytes.slice(0, -small.length)).events).toHaveLength(16_384)
  })

  test('every truncation of a real log', () => {
    // Goal: a log that stops in the middle of an event is no log.
    const boundary = new Set<number>()
    for (let length = 0; length < 3000; length += 1) {
      try {
        decodeEventLog(ubuntu.slice(0, length))
        boundary.add(length)
      } catch (error) {
        expect(error).toBeInstanceOf(Malformed)
      }
    }
    expect(boundary.size).toBeGreaterThan(3)
    expect(boundary.size).toBeLessThan(40)
  })

  test('hostile bytes', async () => {
    // Goal: the codec throws Malformed and nothing else, and what it reads can be replayed.
    await fuzz({ samples: [ubuntu.slice(0, 2000), concat(header(), locality(3), separator)], count: 2000 }, bytes => {
      try {
        const log = decodeEventLog(bytes)
        for (const bank of log.banks) replayEventLog(log, bank)
      } catch (error) {
        if (!(error instanceof Malformed)) throw error
      }
    })
  })
})

describe('against quoted PCRs', () => {
  const pcrs = new Map(
    Object.entries(expectedPcrs['ubuntu-2404-amd-sevsnp.bin']?.expected_pcrs.sha256 ?? {}).map(
      ([pcr, hex]) => [Number(pcr), fromHex(hex) ?? new Uint8Array(0)] as const,
    ),
  )
  const verify = (values: ReadonlyMap<number, Uint8Array>, answersFor: readonly number[] | 'all' = 'all') =>
    verifyEventLog({ log: ubuntu, bank: 'SHA-256', pcrs: { 'SHA-256': values }, answersFor })

  test('the log explains what was quoted', () => {
    // Goal: all quoted PCRs have to come out of the replay, those that the log does not touch with their first value.
    expect(verify(pcrs)).toMatchObject({ outcome: 'pass' })
    expect(verify(new Map([...pcrs, [11, new Uint8Array(32)], [17, new Uint8Array(32).fill(0xff)]]))).toMatchObject({
      outcome: 'pass',
    })
    expect(verify(new Map([...pcrs].slice(0, 2)))).toMatchObject({
      outcome: 'pass',
      reason: expect.stringContaining('are not quoted'),
    })
  })

  test('one that it does not explain', () => {
    // Goal: a PCR of another value, of another length, or none at all is a failure.
    for (const [pcr, value] of pcrs) {
      expect(verify(new Map([...pcrs, [pcr, value.map(byte => byte ^ 1)]])).outcome).toBe('fail')
      expect(verify(new Map([...pcrs, [pcr, value.slice(1)]])).outcome).toBe('fail')
    }
    expect(verify(new Map([...pcrs, [11, new Uint8Array(32).fill(1)]])).outcome).toBe('fail')
    expect(verify(new Map()).outcome).toBe('fail')
    expect(verifyEventLog({ log: ubuntu, bank: 'SHA-384', pcrs: { 'SHA-256': pcrs }, answersFor: 'all' }).outcome).toBe(
      'fail',
    )
    const noBank = {
      log: ubuntu,
      bank: 'SHA-512',
      pcrs: { 'SHA-512': new Map([[0, new Uint8Array(64)]]) },
      answersFor: 'all',
    } as const
    expect(verifyEventLog(noBank)).toMatchObject({
      outcome: 'fail',
      reason: expect.stringContaining('no SHA-512 bank'),
    })
  })

  // IMA extends PCR 10 from the running kernel: the firmware's log has no such events.
  const ima = new Map([...pcrs, [10, new Uint8Array(32).fill(0x1a)]])
  const firmware = [0, 1, 2, 3, 4, 5, 6, 7]

  test('a PCR that others extend', () => {
    // Goal: a quote that covers PCR 10 of an IMA guest passes for the PCRs that the log answers for, and the others are
    // named as not covered.
    expect(pcrs.has(10)).toBe(false)
    expect(verify(ima).outcome).toBe('fail')
    const mine = [...pcrs.keys()]
    expect(verify(ima, mine)).toMatchObject({
      outcome: 'pass',
      reason: expect.stringContaining('does not cover PCR 10'),
    })
    const few = verify(ima, firmware)
    const rest = mine.filter(pcr => pcr > 7).join(', ')
    expect(few).toMatchObject({ outcome: 'pass', reason: expect.stringContaining(`does not cover PCR ${rest}, 10`) })
    expect(verify(pcrs, mine).reason).not.toContain('does not cover')
    // A PCR that the log does not answer for may have any value; one that it does, may not.
    const odd = (pcr: number) => new Map([...ima, [pcr, new Uint8Array(32).fill(7)]])
    expect([verify(odd(9), firmware).outcome, verify(odd(7), firmware).outcome]).toEqual(['pass', 'fail'])
  })

  test('PCRs that were to be answered for', () => {
    // Goal: whoever names PCRs gets no good answer without them: each has to be quoted, and there is at least one.
    const without = new Map([...pcrs].filter(([pcr]) => pcr !== 7))
    expect(verify(without, firmware)).toMatchObject({ outcome: 'fail', reason: 'PCR 7 is not quoted' })
    for (const wrong of [[], [24], [-1], [0.5], [Number.NaN]])
      expect(verify(ima, wrong)).toMatchObject({ outcome: 'fail', reason: expect.stringContaining('answersFor') })
    expect(verify(pcrs, [0, 0, 0]).outcome).toBe('pass')
  })
})
