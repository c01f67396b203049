// Goal: which names a local certificate bears, and for how long names from before a change of the domain are served.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { followNames, otherNames, writeNames } from '../../src/http/served-names.ts'

const directory = mkdtempSync(join(tmpdir(), 'strongroom-names-'))
afterAll(() => rmSync(directory, { recursive: true }))
let files = 0
const newFile = () => join(directory, `${++files}.json`)

const follow = (file: string, names: readonly string[], changes: Partial<Parameters<typeof followNames>[1]> = {}) =>
  followNames(file, { own: names, all: names, served: null, nowMs: 1_000, overlapMs: 500, ...changes })

test('goal: a name needs a leaf of its own unless it is the domain, below it, or an address', () => {
  const names = ['a.test', '*.a.test', 'x.a.test', 'ba.test', 'a.test.org', 'b.test', '*.b.test', '192.0.2.1', '::1']
  expect(otherNames(names, 'a.test')).toEqual(['ba.test', 'a.test.org', 'b.test', '*.b.test'])
})

test('goal: a first start has no names of before; the file is for its owner alone', () => {
  const file = newFile()
  expect(follow(file, ['a.test', '*.a.test'])).toBeNull()
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({ own: ['a.test', '*.a.test'], former: null })
  expect(statSync(file).mode & 0o777).toBe(0o600)
})

test('goal: after a change of the domain the names of before are served until the time, over starts', () => {
  const file = newFile()
  follow(file, ['a.test', '*.a.test', 'localhost', '192.0.2.1'])
  const former = { names: ['a.test', '*.a.test', 'localhost', '192.0.2.1'], endsAtMs: 1_500 }
  expect(follow(file, ['b.test', '*.b.test', 'localhost'])).toEqual(former)
  expect(follow(file, ['b.test', '*.b.test', 'localhost'], { nowMs: 1_499 })).toEqual(former)
  expect(follow(file, ['b.test', '*.b.test', 'localhost'], { nowMs: 1_500 })).toBeNull()
  expect(follow(file, ['b.test', '*.b.test', 'localhost'], { nowMs: 1_499 })).toBeNull()
})

test('goal: nothing changed where each name of before is still served, or was an address or this machine', () => {
  for (const [before, after] of [
    [['a.test'], ['a.test', 'b.test']],
    [['x.a.test', '*.x.a.test'], ['a.test']],
    [['localhost', '192.0.2.1', '2001:db8::1'], ['a.test']],
  ] as const) {
    const file = newFile()
    follow(file, before)
    expect([before, follow(file, after)]).toEqual([before, null])
  }
  const file = newFile()
  follow(file, ['a.test'])
  // `localhost` is served always, and no name is below it.
  expect(follow(file, ['localhost'])).toEqual({ names: ['a.test'], endsAtMs: 1_500 })
})

test('goal: without an overlap nothing of before is served, but what was promised until a time is', () => {
  const file = newFile()
  follow(file, ['a.test'])
  expect(follow(file, ['b.test'], { overlapMs: 0 })).toBeNull()
  const other = newFile()
  writeNames(other, { own: ['b.test'], former: { names: ['a.test'], endsAtMs: 1_001 } })
  expect(follow(other, ['c.test'], { overlapMs: 0 })).toEqual({ names: ['a.test'], endsAtMs: 1_001 })
})

test('goal: a state directory without the file, or with a damaged one, goes by the certificate that it has', () => {
  for (const text of [null, '', '{', '{"own":"a.test","former":null}', '{"own":[]}']) {
    const file = newFile()
    if (text !== null) writeFileSync(file, text)
    expect([text, follow(file, ['b.test'], { served: ['a.test'] })]).toEqual([
      text,
      { names: ['a.test'], endsAtMs: 1_500 },
    ])
  }
  const whole = newFile()
  follow(whole, ['b.test'])
  expect(follow(whole, ['b.test'], { served: ['a.test'] })).toBeNull()
})
