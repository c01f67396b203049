import { expect, test } from 'bun:test'
import { NameList } from '../../src/config/allow-names.ts'
import { parseConfig } from '../../src/config/parse.ts'

function problemsOf(toml: string): string[] {
  const verdict = parseConfig(toml, 'f')
  return verdict.ok ? [] : verdict.problems.map(({ field, message }) => `${field}: ${message}`)
}
const listOf = (...names: string[]) => problemsOf(`[network]\nallow_names = ${JSON.stringify(names)}`)

test('goal: a list says what it means; what is no name is refused with its field, and what to write', () => {
  expect(listOf('crates.io', '*.githubusercontent.com', 'xn--bcher-kva.example', 'a-1.b.example')).toEqual([])
  for (const wrong of [
    'localhost',
    '*',
    '*.com',
    'a.*.example',
    '*a.example',
    'CRATES.io',
    'a..b',
    '.a.b',
    'a.b.',
    '10.1.2.3',
    'a.9',
    '-a.b',
  ])
    expect([wrong, listOf('crates.io', wrong)[0]]).toEqual([wrong, expect.stringContaining('network.allow_names.1: ')])
  for (const wrong of ['a b.example', 'a_b.example', `${'a'.repeat(64)}.example`, 'https://crates.io', '2001:db8::1'])
    expect([wrong, listOf(wrong)[0]]).toEqual([wrong, expect.stringContaining('network.allow_names.0: ')])
  expect(listOf('*.bücher.example')[0]).toContain('write *.xn--bcher-kva.example')
  expect(listOf('Crates.io')[0]).toContain('write crates.io')
  expect(listOf('a.example', 'a.example')[0]).toContain('names a.example twice')
  expect(listOf(...Array.from({ length: 257 }, (_, n) => `n${n}.example`))).toHaveLength(1)
})

test('goal: what a list needs is there, and what it would cut off is said', () => {
  const list = '[network]\nallow_names = ["crates.io"]\n'
  expect(problemsOf(`${list}resolvers = []`)).toEqual([expect.stringContaining('network.resolvers: is empty')])
  const url = (name: string) => `${list}[instances]\ninference_base_url = "https://${name}/v1"`
  expect(problemsOf(url('ai.example'))).toEqual([expect.stringContaining('instances.inference_base_url: ai.example')])
  expect([problemsOf(url('crates.io')), problemsOf(url('198.51.100.7'))]).toEqual([[], []])
  const dns = (at: string) => problemsOf(`${list}[listen]\ndns = "${at}"`)
  expect(dns('169.254.88.1:53')).toEqual([expect.stringContaining('listen.dns: ')])
  expect([dns('0.0.0.0:53'), dns('169.254.88.1:5353')]).toEqual([[], []])
})

test('goal: a name is on the list itself, or below one with a star, and never by its end alone', () => {
  const list = new NameList(['crates.io', '*.wide.example'])
  for (const name of ['crates.io', 'a.wide.example', 'a.b.wide.example'])
    expect([name, list.allows(name)]).toEqual([name, true])
  for (const name of [
    '',
    'io',
    'a.crates.io',
    'wide.example',
    'xwide.example',
    'wide.example.evil.example',
    '.crates.io',
  ])
    expect([name, list.allows(name)]).toEqual([name, false])
})
