// Goal: every mistake in a configuration file is reported at once, with its line, its field and what is allowed.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { parseListen } from '../../src/config/cross-checks.ts'
import { lineOf, scanLines } from '../../src/config/lines.ts'
import { defaultConfig, loadConfig, resolveStateDir } from '../../src/config/load.ts'
import { nearestName, parseConfig, problemText } from '../../src/config/parse.ts'
import { configReference, configToml } from '../../src/config/reference.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-config-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

function problems(text: string): string[] {
  const verdict = parseConfig(text, 'f')
  return verdict.ok ? [] : verdict.problems.map(problemText)
}

const MISTAKES: [string, string[]][] = [
  ['a = = 3', ['f:1: Invalid TOML document: invalid value (TOML syntax)']],
  ['[tls]\n[tls]', ['f:2: Invalid TOML document: trying to redefine an already defined table or value (TOML syntax)']],
  ['domian = "x"', ['f:1: domian: unknown field; did you mean domain?']],
  ['\n\n[tls]\n# c\nvalidty_days = 3', ['f:5: tls.validty_days: unknown field; did you mean validity_days?']],
  ['validity_days = 3', ['f:1: validity_days: unknown field; it belongs in [tls]']],
  ['[tls]\ndomain = "x"', ['f:2: tls.domain: unknown field; it belongs at the top of the file, before any [table]']],
  ['[listen]\nzzz = 1', ['f:2: listen.zzz: unknown field; allowed: instances, inference, dns']],
  ['[lisen]\ndns = ""', ['f:1: lisen: unknown field; did you mean listen?']],
  ['vm = 3', ['f:1: vm: 3 is not allowed; allowed: a table']],
  ['[vm]\nvcpus = "2"', ['f:2: vm.vcpus: "2" is not allowed; allowed: an integer from 1 to 255']],
  ['[vm]\nvcpus = 2.5', ['f:2: vm.vcpus: 2.5 is not allowed; allowed: an integer from 1 to 255']],
  ['[vm]\nvcpus = 0', ['f:2: vm.vcpus: 0 is not allowed; allowed: an integer from 1 to 255']],
  ['[vm]\nvcpus = nan', ['f:2: vm.vcpus: NaN is not allowed; allowed: an integer from 1 to 255']],
  ['platform = "sev"', ['f:1: platform: "sev" is not allowed; allowed: one of "auto", "snp", "kvm", "tcg"']],
  ['domain = "Foo"', ['f:1: domain: "Foo" is not allowed; allowed: a DNS name in lowercase, at most 180 characters']],
  ['[tls]\nnames = [\n  "a",\n  7,\n]', ['f:4: tls.names.1: 7 is not allowed; allowed: text of 1 to 253 characters']],
  ['tls = { validity_days = 0 }', ['f:1: tls.validity_days: 0 is not allowed; allowed: an integer from 1 to 397']],
  ['\ntls.validity_days = 0', ['f:2: tls.validity_days: 0 is not allowed; allowed: an integer from 1 to 397']],
  ['[tls]\nkey_file = "/k"', ['f:2: tls.key_file: needs certificate_file too; set both or none']],
  ['[tls]\ncertificate_file = "/c"', ['f:2: tls.certificate_file: needs key_file too; set both or none']],
  [
    '[tls]\ncertificate_file = "c"\nkey_file = "k"',
    ['f:2: tls.certificate_file: "c" is not an absolute path', 'f:3: tls.key_file: "k" is not an absolute path'],
  ],
  [
    '[tls]\nvalidity_days = 20',
    [
      'f:1: tls.renew_before_days: must be less than validity_days (20), else every certificate is already due for renewal',
    ],
  ],
  [
    '[network]\npool_v4 = "10.1.2.3/24"',
    ['f:2: network.pool_v4: 10.1.2.3/24 has bits set behind its prefix; write 10.1.2.0/24'],
  ],
  [
    '[network]\npool_v4 = "10.1.0.0/15"',
    ['f:2: network.pool_v4: "10.1.0.0/15" is not allowed; allowed: an IPv4 network A.B.C.D/N, N from 16 to 30'],
  ],
  [
    '[network]\npool_v4 = "224.0.0.0/24"',
    ['f:2: network.pool_v4: 224.0.0.0/24 does not hold addresses that instances can have; use a unicast network'],
  ],
  [
    '[network]\n\ngateway_v4 = "10.88.0.9"',
    [
      'f:3: network.gateway_v4: 10.88.0.9 lies in pool_v4 (10.88.0.0/24), whose addresses instances get; choose one outside',
    ],
  ],
  [
    '[network]\nresolvers = ["10.88.0.1"]',
    ['f:2: network.resolvers.0: 10.88.0.1 lies in pool_v4 (10.88.0.0/24), whose addresses instances get'],
  ],
  [
    '[listen]\ninstances = "1.2.3.4:70000"',
    [
      'f:2: listen.instances: "1.2.3.4:70000" is not allowed; allowed: ADDRESS:PORT with an IPv4 address or an IPv6 address in brackets, port 0 to 65535',
    ],
  ],
  [
    '[listen]\ninstances = "0.0.0.0:53"',
    ['f:1: listen.dns: 0.0.0.0:53 is taken by listen.instances; choose another port'],
  ],
  ['[vm]\nsnp_boot = "igvm"', ['f:2: vm.snp_boot: "igvm" needs igvm, the path of the IGVM file']],
  [
    '[capacity]\nmemory_mib = 1',
    [
      'f:2: capacity.memory_mib: 1 has no room for even one instance of vm.memory_mib (2048); raise it, or 0 for the default',
    ],
  ],
  [
    '[instances]\nretention_days = 29',
    ['f:2: instances.retention_days: 29 is not allowed; allowed: an integer from 30 to 3650'],
  ],
  ['[instances]\ninference_models = ["a", "a"]', ['f:2: instances.inference_models: names a model twice']],
  [
    '[billing]\nsubscription_cost_usd = "1,5"',
    [
      'f:2: billing.subscription_cost_usd: "1,5" is not allowed; allowed: US dollars as text, such as "12.50"; at most six decimals',
    ],
  ],
]

test.each(MISTAKES)('goal: the mistake in %j is reported', (text, expected) => {
  expect(problems(text)).toEqual(expected)
})

test('goal: all mistakes come at once, by line', () => {
  expect(problems('platform = 1\n[vm]\nvcpu = 1\nmemory_mib = 1\n[oops]\n').map(line => line.split(' ')[0])).toEqual([
    'f:1:',
    'f:3:',
    'f:4:',
    'f:5:',
  ])
})

test('goal: dangerous keys are refused and leave no trace', () => {
  expect(problems('__proto__ = { polluted = 1 }')).toHaveLength(1)
  expect(problems('[vm.constructor]\na = 1')).toHaveLength(1)
  expect(Reflect.get({}, 'polluted')).toBeUndefined()
})

test('goal: lines are found through every way of writing a key', () => {
  const text = [
    '# a = 1',
    'a = """',
    'b = 2',
    '"""',
    "c = '''x'''",
    'd.e = [ # comment with ]',
    '  "x,]", { f = 1 },',
    ']',
    '["q uoted"."é\\"x"]',
    'g = 1979-05-27T07:32:00Z',
    '[[list]]',
    'h = 1',
    '[[list]]',
    'h = 2',
    'i = "a\\"#b" # "',
    'j = true',
  ].join('\n')
  const lines = scanLines(text)
  const table: [string, number | undefined][] = [
    ['a', 2],
    ['b', undefined],
    ['c', 5],
    ['d', 6],
    ['d.e', 6],
    ['d.e.0', 7],
    ['d.e.1.f', 7],
    ['q uoted.é"x.g', 10],
    ['list.0.h', 12],
    ['list.1.h', 14],
    ['list.1.i', 15],
    ['list.1.j', 16],
  ]
  expect(table.map(([path]) => [path, lines.get(path)])).toEqual(table)
  expect(lineOf(lines, ['list', '1', 'absent'])).toBe(13)
  expect(lineOf(lines, ['absent'])).toBe(1)
})

test('goal: no text makes parser or scanner throw or hang', () => {
  const piece = fc.constantFrom(
    'a',
    '=',
    '[',
    ']',
    '{',
    '}',
    '"',
    "'",
    '"""',
    '.',
    ',',
    '\n',
    '#',
    '\\',
    '1',
    ' ',
    'tls',
  )
  const text = fc.array(piece, { maxLength: 40 }).map(pieces => pieces.join(''))
  fc.assert(
    fc.property(text, written => {
      scanLines(written)
      parseConfig(written, 'f')
    }),
    { seed: 20261120, numRuns: 3_000 },
  )
})

test('goal: the reference is a file that means the defaults, and shows every field', () => {
  const verdict = parseConfig(configReference(), 'f')
  expect(verdict).toEqual({ ok: true, config: defaultConfig() })
  const namesIn = (table: object): string[] =>
    Object.entries(table).flatMap(([name, value]) =>
      typeof value === 'object' && !Array.isArray(value) ? namesIn(value) : [name],
    )
  const names = namesIn(defaultConfig())
  for (const name of names) expect(configReference()).toMatch(new RegExp(`^# .+\\n${name} = `, 'm'))
})

test('goal: a configuration written as TOML reads back the same', () => {
  const config = { ...defaultConfig(), domain: 'x.example', tls: { ...defaultConfig().tls, names: ['a', '::1'] } }
  expect(parseConfig(configToml(config), 'f')).toEqual({ ok: true, config })
})

test('goal: an absent default file means defaults, an absent named file is an error', () => {
  const file = join(dir, 'c.toml')
  expect(() => loadConfig({ path: file, env: {} })).toThrow(/read configuration: ENOENT/)
  expect(() => loadConfig({ path: undefined, env: { STRONGROOM_CONFIG: file } })).toThrow(/ENOENT/)
  writeFileSync(file, 'domain = "named.example"')
  const other = join(dir, 'd.toml')
  writeFileSync(other, 'domain = "other.example"')
  const env = { STRONGROOM_CONFIG: other }
  expect(loadConfig({ path: file, env })).toMatchObject({ file, config: { domain: 'named.example' } })
  expect(loadConfig({ path: undefined, env })).toMatchObject({ file: other, config: { domain: 'other.example' } })
})

test('goal: a single mistake names its field, several do not single one out', () => {
  const file = join(dir, 'c.toml')
  writeFileSync(file, 'platform = 1')
  expect(() => loadConfig({ path: file, env: {} })).toThrow(
    expect.objectContaining({ code: 'config.invalid', param: 'platform' }),
  )
  writeFileSync(file, 'platform = 1\ndomain = 2')
  expect(() => loadConfig({ path: file, env: {} })).toThrow(expect.objectContaining({ param: undefined }))
})

test('goal: the state directory is taken from the option, the environment, the default, in this order', () => {
  const env = { STRONGROOM_STATE_DIR: '/from/env' }
  expect(resolveStateDir({ path: '/from/option', env })).toBe('/from/option')
  expect(resolveStateDir({ path: undefined, env })).toBe('/from/env')
  expect(resolveStateDir({ path: undefined, env: { STRONGROOM_STATE_DIR: '' } })).toBe('/var/lib/strongroom')
})

test('goal: listen addresses are split exactly', () => {
  const table: [string, ReturnType<typeof parseListen>][] = [
    ['0.0.0.0:8441', { hostname: '0.0.0.0', port: 8441 }],
    ['[::1]:53', { hostname: '::1', port: 53 }],
    ['::1:53', null],
    ['256.0.0.1:1', null],
    ['[::g]:1', null],
    ['1.2.3.4:65536', null],
    ['1.2.3.4', null],
  ]
  for (const [text, expected] of table) expect([text, parseListen(text)]).toEqual([text, expected])
})

test('goal: only near names are suggested', () => {
  expect(nearestName('domian', ['domain', 'platform'])).toBe('domain')
  expect(nearestName('xyz', ['domain', 'dns'])).toBeNull()
})
