// Kept texts: for whom, how long and how many, whoever asks for how much.

import { describe, expect, test } from 'bun:test'
import { TextCache, type TextCacheLimits } from '../../../src/base/work/text-cache.ts'

function open(limits: Partial<TextCacheLimits> = {}) {
  let nowMs = 1_000
  const kept = new TextCache({
    clock: { monotonicMs: () => nowMs },
    limits: { retentionMs: 100, countMax: 10, bytesMax: 1_000, ...limits },
  })
  return {
    kept,
    pass: (ms: number) => {
      nowMs += ms
    },
    /** By a key whose digest is `keyDigest`; where nothing is said, the organization has that key alone. */
    keep: (id: string, organizationId: string, bytes = 10, keyDigest = organizationId) =>
      kept.keep(id, { organizationId, keyDigest, text: id.padEnd(bytes, '.'), facts: null }),
  }
}

test('goal: a receipt is there for the very key that asked, not for another one of its organization', () => {
  const { kept, keep } = open()
  keep('a1', 'a')
  keep('a9', 'a', 10, 'other key')
  expect([kept.find('a9', 'a'), kept.find('a9', 'other key')]).toEqual([null, 'a9........'])
  expect([kept.find('a1', 'a'), kept.find('a1', 'b'), kept.find('a2', 'a')]).toEqual(['a1........', null, null])
})

test('goal: it ends with its time, whether somebody asks or not, and nothing is left of it', () => {
  const { kept, keep, pass } = open()
  keep('a1', 'a')
  pass(60)
  keep('b1', 'b')
  pass(39)
  expect(kept.find('a1', 'a')).not.toBeNull()
  pass(1)
  expect([kept.find('a1', 'a'), kept.find('b1', 'b')]).toEqual([null, 'b1........'])
  pass(60)
  keep('c1', 'c')
  expect(kept.size).toEqual({ count: 1, bytes: 10 })
})

test('goal: with a time of zero none is kept', () => {
  const { kept, keep } = open({ retentionMs: 0 })
  keep('a1', 'a')
  expect([kept.find('a1', 'a'), kept.size.count]).toEqual([null, 0])
})

test('goal: facts are there for the key alone and as long as the text, and to read them does not keep it longer', () => {
  let nowMs = 1_000
  const limits = { retentionMs: 100, countMax: 10, bytesMax: 1_000 }
  const kept = new TextCache<{ readonly chars: number }>({ clock: { monotonicMs: () => nowMs }, limits })
  kept.keep('a1', { organizationId: 'a', keyDigest: 'k', text: 'text', facts: { chars: 4 } })
  nowMs += 99
  expect([kept.factsOf('a1', 'k'), kept.factsOf('a1', 'other'), kept.factsOf('a2', 'k')]).toEqual([
    { chars: 4 },
    null,
    null,
  ])
  nowMs += 1
  expect(kept.factsOf('a1', 'k')).toBeNull()
})

describe('when there is no more room', () => {
  for (const [bound, limits] of [
    ['count', { countMax: 10 }],
    ['bytes', { countMax: 1_000, bytesMax: 100 }],
  ] as const) {
    test(`goal: by ${bound}, who keeps very many loses their own oldest, and nobody else loses any`, () => {
      const { kept, keep } = open(limits)
      for (const id of ['b1', 'b2', 'c1']) keep(id, id.charAt(0))
      for (let at = 0; at < 5_000; at += 1) {
        keep(`a${at}`, 'a')
        expect(kept.size.count).toBeLessThanOrEqual(10)
        expect(kept.size.bytes).toBeLessThanOrEqual(100)
      }
      for (const id of ['b1', 'b2', 'c1']) expect(kept.find(id, id.charAt(0))).not.toBeNull()
      const own = Array.from({ length: 5_000 }, (_, at) => `a${at}`).filter(id => kept.find(id, 'a') !== null)
      expect(own).toEqual(Array.from({ length: 7 }, (_, at) => `a${4_993 + at}`))
    })
  }

  test('goal: a newcomer gets room from who has most, up to as much', () => {
    const { kept, keep } = open({ countMax: 4 })
    for (let at = 0; at < 4; at += 1) keep(`a${at}`, 'a')
    for (let at = 0; at < 4; at += 1) keep(`b${at}`, 'b')
    const left = ['a0', 'a1', 'a2', 'a3', 'b0', 'b1', 'b2', 'b3'].filter(id => kept.find(id, id.charAt(0)) !== null)
    expect(left.filter(id => id.startsWith('a')).length).toBe(2)
    expect(left.filter(id => id.startsWith('b')).length).toBe(2)
    expect(left).toContain('b3')
  })
})

test('goal: in any order of keeping and time the counts are those of what is there', () => {
  const { kept, keep, pass } = open({ countMax: 20, bytesMax: 300 })
  const all: [id: string, organization: string, bytes: number][] = []
  for (let at = 0; at < 2_000; at += 1) {
    const organization = 'abcde'.charAt((at * at) % 5)
    const bytes = 5 + ((at * 7) % 40)
    all.push([`${organization}${at}`, organization, bytes])
    keep(`${organization}${at}`, organization, bytes)
    pass((at * 13) % 9)
    const there = all.slice(-100).filter(([id, owner]) => kept.find(id, owner) !== null)
    expect(kept.size).toEqual({ count: there.length, bytes: there.reduce((sum, [, , value]) => sum + value, 0) })
  }
})
