// Headers that are kept from one response to the next.

import { expect, test } from 'bun:test'
import { createSameNamed } from '../../../src/inference/gateway/same-named.ts'

type Given = Record<string, string>

const listOf = (headers: Headers) => [...headers].sort()

// Goal: whatever came before, a response has the headers that it was given, and no other.
test('each response has its own headers, whatever those before it had', () => {
  const sameNamed = createSameNamed()
  const names = ['x-a', 'x-b', 'content-type', 'retry-after', 'x-strongroom-receipt']
  const seen: { readonly response: Response; readonly given: Given }[] = []
  for (let i = 0; i < 2_000; i += 1) {
    // Runs of the same names, values that change and values that stay, and names that come and go in any order.
    const some = names.filter((_, at) => ((i >> 3) * 0x9e3779b1) & (1 << (at + 7)))
    const ordered = i % 16 < 8 ? some : some.toReversed()
    const given = Object.fromEntries(ordered.map((name, at) => [name, `${name} ${(i >> at) % 5}`]))
    seen.push({ response: new Response('', { headers: sameNamed(given) }), given })
  }
  for (const { response, given } of seen) expect(listOf(response.headers)).toEqual(listOf(new Headers(given)))
})

// Goal: a value that no header may have fails as with `new Headers`, and leaves nothing behind.
test('a value that is refused is in no later response', () => {
  const sameNamed = createSameNamed()
  sameNamed({ 'x-a': '1', 'x-b': '1' })
  expect(() => sameNamed({ 'x-a': '2', 'x-b': 'line\nbreak' })).toThrow()
  expect(listOf(sameNamed({ 'x-a': '3', 'x-b': '1' }))).toEqual([
    ['x-a', '3'],
    ['x-b', '1'],
  ])
  expect(() => sameNamed({ 'x-c': 'line\nbreak' })).toThrow()
  expect(listOf(sameNamed({ 'x-c': '1' }))).toEqual([['x-c', '1']])
})
