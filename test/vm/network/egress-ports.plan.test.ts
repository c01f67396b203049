// Goal: each address with a port is in the set if and only if one entry allows it, and no two elements overlap: the
// kernel refuses a set with overlapping intervals, and with it every rule.

import { expect, test } from 'bun:test'
import { portElements } from '../../../src/vm/network/egress-ports.plan.ts'

const family = {
  after: (address: number) => address + 1,
  before: (address: number) => address - 1,
  text: ({ first, last }: { first: number; last: number }) => (first === last ? `${first}` : `${first}-${last}`),
}
type Entry = { first: number; last: number; ports: { first: number; last: number } | null }
const entry = (first: number, last: number, ports: [number, number] | null): Entry => ({
  first,
  last,
  ports: ports === null ? null : { first: ports[0], last: ports[1] },
})
const elements = (...entries: Entry[]) => portElements(entries, family)

test('goal: one entry is one element; one without ports is in another set', () => {
  expect(elements()).toEqual([])
  expect(elements(entry(10, 20, null))).toEqual([])
  expect(elements(entry(10, 20, [443, 443]))).toEqual(['10-20 . 443'])
  expect(elements(entry(7, 7, [80, 90]))).toEqual(['7 . 80-90'])
})

test('goal: where entries overlap, each stretch has the ports of all of them', () => {
  expect(elements(entry(10, 20, [443, 443]), entry(15, 30, [80, 80]))).toEqual([
    '10-14 . 443',
    '15-20 . 80',
    '15-20 . 443',
    '21-30 . 80',
  ])
  expect(elements(entry(10, 20, [443, 443]), entry(12, 12, [22, 22]))).toEqual([
    '10-11 . 443',
    '12 . 22',
    '12 . 443',
    '13-20 . 443',
  ])
})

test('goal: ports that touch or overlap at one address are one element; the same entry twice changes nothing', () => {
  expect(elements(entry(1, 2, [80, 90]), entry(1, 2, [85, 95]), entry(1, 2, [96, 99]))).toEqual(['1-2 . 80-99'])
  expect(elements(entry(1, 2, [80, 81]), entry(1, 2, [80, 81]))).toEqual(['1-2 . 80-81'])
})

test('goal: neighbours do not run into each other, and what is between entries is in no element', () => {
  expect(elements(entry(1, 2, [80, 80]), entry(3, 4, [81, 81]))).toEqual(['1-2 . 80', '3-4 . 81'])
  expect(elements(entry(9, 9, [80, 80]), entry(1, 1, [80, 80]))).toEqual(['1 . 80', '9 . 80'])
})

test('goal: over many small sets of entries, exactly what an entry allows is in exactly one element', () => {
  const span = 6
  const possible = [
    entry(0, 2, [1, 2]),
    entry(1, 4, [2, 4]),
    entry(3, 3, [1, 4]),
    entry(2, 5, [4, 5]),
    entry(0, 5, [3, 3]),
  ]
  for (let chosen = 0; chosen < 2 ** possible.length; chosen += 1) {
    const entries = possible.filter((_, at) => (chosen >> at) & 1)
    const read = elements(...entries).map(text => {
      const [addresses = '', ports = ''] = text.split(' . ')
      const ends = (range: string) => range.split('-').map(Number)
      const [from = 0, to = from] = ends(addresses)
      const [low = 0, high = low] = ends(ports)
      return { from, to, low, high }
    })
    for (let address = 0; address < span; address += 1) {
      for (let port = 0; port < span + 1; port += 1) {
        const wanted = entries.some(
          ({ first, last, ports }) =>
            first <= address && address <= last && ports !== null && ports.first <= port && port <= ports.last,
        )
        const holding = read.filter(
          ({ from, to, low, high }) => from <= address && address <= to && low <= port && port <= high,
        )
        expect([chosen, address, port, holding.length]).toEqual([chosen, address, port, wanted ? 1 : 0])
      }
    }
  }
})
