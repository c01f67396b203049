// JSON on which trust is decided: no name twice, and no reader of our own beside the strict one.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { parsedJson } from '../../../src/attest/encoding/json.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { codeOf } from '../../meta/source.ts'

const parse = (text: string) => () => parsedJson('thing', utf8(text))

// Goal: a name that stands twice in one object is refused and named, however it is written and however deep; apart it
// may stand as often as it likes.
test('a name twice', () => {
  expect(parse('{"a":{"b":1},"c":[{"b":2},{"b":3}]}')()).toEqual({ a: { b: 1 }, c: [{ b: 2 }, { b: 3 }] })
  for (const text of [
    '{"b":1,"b":1}',
    '{"a":{"b":1,"b":2}}',
    '[{"b":1,"\\u0062":2}]',
    '{"b":{"b":1},"x":"\\"","b":1}',
  ]) {
    expect(parse(text)).toThrow(Malformed)
    expect(parse(text)).toThrow('thing has the field "b" twice')
  }
  const long = 'x'.repeat(10_000)
  expect(parse(`{"${long}":1,"${long}":1}`)).toThrow(/^thing has a field twice\.$/)
})

// Goal: what is no JSON, or more than strict JSON, is Malformed, in words that name the thing.
test('refused', () => {
  for (const text of ['', '{', '{}x', `${'['.repeat(17)}${']'.repeat(17)}`, '{"a":"\\u0000"}', '{"a":"\\ud800"}']) {
    expect(parse(text)).toThrow(Malformed)
    expect(parse(text)).toThrow(/^thing /)
  }
  expect(() => parsedJson('thing', Uint8Array.of(0xff))).toThrow('thing is not valid UTF-8')
})

// Goal: JSON.parse lets the last of two equal names win, so that each use of it where trust is decided is one of these.
test('where JSON.parse stands', () => {
  const allowed: Readonly<Record<string, string>> = {
    'base/json.ts': 'the strict reader itself',
    'attest/ehbp/key-config-problem.ts': 'whether an error asks for the keys again; they are verified anew',
    'attest/ehbp/whole.ts': 'whether a stream ended with an error event; nothing of it is taken',
    'attest/receipt/receipt.ts': 'counts the names of the text, and refuses a second one',
    'cli/init/kept-answers.driver.ts': 'answers that this program kept; a damaged file counts as none',
    'cli/init/prompt.plan.ts': 'what the trial printed inside the instance; other text is no answer',
    'client/build/lacking.ts': "the files that a vendored package of the user's own source lists",
    'terminal/input-file.ts': "for the parser's own words; the strict reader follows",
    'terminal/refusal.ts': 'the message of an HTTP error, which is only shown',
    'client/trust/trust-options.ts': 'a name that this program itself wrote into its message',
    'verifier/fetch/evidence.ts': 'the code of an HTTP error, which is only shown',
    'vm/firewall-probe/probe.driver.ts': 'what nft and ip of this host print',
    'vm/network/network.driver.ts': 'what this host has written into its own ledger',
    'vm/network/published/allowances.ts': 'what this host has written into its own ledger',
  }
  const root = resolve(import.meta.dir, '../../../src')
  const rooms =
    'attest base cli client config contract terminal verifier vm inference/attestation inference/worker'.split(' ')
  const found = rooms.flatMap(room =>
    [...new Bun.Glob('**/*.ts').scanSync({ cwd: resolve(root, room) })]
      .map(path => `${room}/${path}`)
      .filter(path => codeOf(readFileSync(resolve(root, path), 'utf8')).includes('JSON.parse')),
  )
  expect(found.toSorted()).toEqual(Object.keys(allowed).toSorted())
})
