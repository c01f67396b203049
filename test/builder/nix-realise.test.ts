// Goal: answers of Nix about what is missing and what came are read in each form that versions write, and the signed
// text is Nix's own. The path, hash and signature are those of a cache that Nix 2.8 made.

import { expect, test } from 'bun:test'
import { orderOf } from '../../scripts/rigs/build/vm.ts'
import { defaultVerifiers } from '../../src/attest/receipt/verifiers.ts'
import { fromUtf8 } from '../../src/base/bytes.ts'
import { hasOtherBytes } from '../../src/builder/nix/causes.plan.ts'
import { nixBuildArgv, readDerivations, realisedFetches } from '../../src/builder/nix/nix.plan.ts'
import {
  fingerprintOf,
  nixEvaluateArgv,
  nixMissingArgv,
  nixPrefetchArgv,
  nixSubstituteArgv,
  readInputs,
  readMissing,
  readPathInfos,
} from '../../src/builder/nix/realise.plan.ts'
import { orderProblem } from '../../src/builder/order.plan.ts'

const stdenv = '/nix/store/49yd1mhly8cmpfhaz1mdcc3qll1iw05d-stdenv-1.0'
const base = '/nix/store/aqx1rx97yy98x9ga13h0hdgbypa5hgw7-base-1.0'
const drvPath = '/nix/store/g6df56y7k221zfc3244z3f3xzk2amxzb-stdenv-1.0.drv'
const publicKey = 'test-1:KfY0wGcmO8N+pm9hTacEix4P+r4/Jx13rv1OwhOHRw0='
const signature = 'test-1:kSB6kTbSj4ZeIh41ICRU0JVM5b8BEb5NuBw5K121qe/HjhEb8BnbPmzxqZWc5o74zwEijreKwppKLQzP2DY5Dg=='
const caches = [{ url: 'https://cache.example/a', publicKey }]

/** The values of an option, the last of which counts. */
const optionOf = (argv: readonly string[], name: string) => argv.filter((_, at) => argv[at - 1] === name)

const described = {
  narHash: 'sha256-xeMn4HrNDfq7v6TjVSfNM3mVf64qwDSpxRFED+z/zz0=',
  narSize: 200,
  references: [base],
  signatures: [signature],
}

test('goal: no program of the fetch may build, and only the named caches and keys count', () => {
  const evaluate = nixEvaluateArgv('path:/build/source', 'new')
  expect(optionOf(evaluate, 'max-jobs')).toEqual(['0'])
  expect(optionOf(evaluate, 'allow-import-from-derivation')).toEqual(['false'])
  expect(optionOf(evaluate, 'substitute')).toEqual(['false'])
  for (const argv of [nixMissingArgv([stdenv], caches), nixSubstituteArgv([stdenv], caches)]) {
    expect(
      ['max-jobs', 'substitute', 'substituters', 'trusted-public-keys', 'require-sigs', 'fallback'].map(name =>
        optionOf(argv, name),
      ),
    ).toEqual([['0'], ['true'], ['https://cache.example/a'], [publicKey], ['true'], ['false']])
  }
  expect(optionOf(nixMissingArgv([stdenv], []), 'substitute')).toEqual(['false'])
  expect(optionOf(nixBuildArgv('path:/build/source'), 'substitute')).toEqual(['false'])
})

test('goal: what is missing is read from the three lists, and nothing else is', () => {
  const text = `warning: x
these 2 derivations will be built:
  /nix/store/a-mid.drv
  /nix/store/b-src.drv
these 2 paths will be fetched (0.00 MiB download, 0.00 MiB unpacked):
  ${stdenv}
  ${base}
don't know how to build these paths:
  /nix/store/c-lost
error: x
  /nix/store/d-other
`
  expect(readMissing(text)).toEqual({
    build: ['/nix/store/a-mid.drv', '/nix/store/b-src.drv'],
    fetch: [stdenv, base],
    unknown: ['/nix/store/c-lost'],
  })
  const single = `this derivation will be built:\n  /nix/store/a.drv\nthis path will be fetched (1.20 MiB download, 3.40 MiB unpacked):\n  ${base}\n`
  expect(readMissing(single)).toEqual({ build: ['/nix/store/a.drv'], fetch: [base], unknown: [] })
  expect(readMissing('')).toEqual({ build: [], fetch: [], unknown: [] })
})

test('goal: inputs of a derivation, as Nix writes them before 2.19 and since', () => {
  const of = (wanted: unknown) => readInputs(JSON.stringify({ '/x.drv': { inputDrvs: { [drvPath]: wanted } } }))
  expect(of(['out', 'dev'])).toEqual([`${drvPath}!dev`, `${drvPath}!out`])
  expect(of({ dynamicOutputs: {}, outputs: ['out'] })).toEqual([`${drvPath}!out`])
  expect(of('out')).toBeNull()
  expect(readInputs('[]')).toBeNull()
  expect(readInputs(JSON.stringify({ '/x.drv': { inputDrvs: { '/etc/passwd': ['out'] } } }))).toBeNull()
})

test('goal: the path that a cache signed is found signed, in both forms, and another is not', async () => {
  const [first] = readPathInfos(JSON.stringify([{ path: stdenv, ...described }])) ?? []
  const [second] = readPathInfos(JSON.stringify({ [stdenv]: { ...described, ca: null } })) ?? []
  expect(second).toEqual(first)
  if (first === undefined) throw new Error('no path')
  expect(fromUtf8(fingerprintOf(first))).toBe(
    `1;${stdenv};sha256:0gfgzzn0yi0iqnlk9h1amrzray9krlkmbqx4pyxzl3fdgbh2gqy5;200;${base}`,
  )
  const bytes = (text: string) => Uint8Array.fromBase64(text.split(':')[1] ?? '')
  const holds = (info: typeof first) =>
    defaultVerifiers.ed25519(bytes(signature), fingerprintOf(info), bytes(publicKey), new Uint8Array(0))
  expect(await holds(first)).toBe(true)
  expect(await holds({ ...first, narBytes: 201 })).toBe(false)
  expect(await holds({ ...first, references: [] })).toBe(false)
  for (const other of [{ narHash: 'sha256-x' }, { narSize: '200' }, { references: [7] }, { signatures: 'x' }])
    expect(readPathInfos(JSON.stringify({ [stdenv]: { ...described, ...other } }))).toBeNull()
  expect(readPathInfos(JSON.stringify({ [stdenv]: null }))).toBeNull()
  expect(readPathInfos(JSON.stringify({ '/etc/passwd': described }))).toBeNull()
})

test('goal: fixed outputs are fetched from https alone, whatever a source writes into them', () => {
  const fetchesOf = (env: object, output: object = {}) =>
    readDerivations(
      JSON.stringify({
        [drvPath]: { env, outputs: { out: { path: base, hash: 'ab'.repeat(32), hashAlgo: 'sha256', ...output } } },
      }),
    )?.fetches ?? []
  const wordsOf = (env: object, output: object = {}) => nixPrefetchArgv(fetchesOf(env, output))?.slice(4) ?? null
  const hex = 'ab'.repeat(32)
  expect(wordsOf({ name: 'x', url: 'https://a.example/x' })).toEqual([
    ...['sha256', 'base-1.0', '', 'https://a.example/x', hex],
  ])
  // The name is that of the store path. Without one it is what the source says.
  const json = JSON.stringify({
    name: "it's; $(id)",
    urls: ['mirror://x/y', 'https://a.example/x', 'https://b.example/x'],
  })
  expect(wordsOf({ __json: json }, { path: null })).toEqual([
    ...['sha256', "it's; $(id)", '', 'https://a.example/x', hex],
    ...['sha256', "it's; $(id)", '', 'https://b.example/x', hex],
  ])
  const recursive = { hashAlgo: 'r:sha256' }
  expect(wordsOf({ name: 'x', url: 'https://a.example/x.tar.gz' }, recursive)?.[2]).toBe('--unpack')
  expect(wordsOf({ name: 'x', url: 'https://a.example/x.git' }, recursive)).toBeNull()
  for (const url of ['http://a.example/x', 'file:///etc/passwd', '--help', ''])
    expect(wordsOf({ name: 'x', url })).toBeNull()
  // One that no build needed is not listed.
  const derivations = { fetches: fetchesOf({ name: 'x' }) }
  expect(realisedFetches(derivations, new Set([base])).length).toBe(1)
  expect(realisedFetches(derivations, new Set([stdenv]))).toEqual([])
})

test('goal: an order with two keys of one name is refused', () => {
  const order = (...publicKeys: string[]) =>
    orderOf({
      options: {
        nix: { output: null, caches: publicKeys.map(key => ({ url: 'https://cache.example', publicKey: key })) },
      },
    })
  expect(orderProblem(order(publicKey, publicKey))).toBeNull()
  expect(orderProblem(order(publicKey, `test-2:${'A'.repeat(43)}=`))).toBeNull()
  expect(orderProblem(order(publicKey, `test-1:${'A'.repeat(43)}=`))).toStartWith(
    'build.order.options.nix.caches: two keys',
  )
})

// Goal: only Nix's words about bytes accuse a cache, not the name of a path that a cache refuses.
test.each([
  ["error: unable to download 'https://c.example/nar/x-corruption-tests.nar': HTTP error 403", false],
  ["error: cannot fetch '/nix/store/a-corrupt-1.0': HTTP error 403", false],
  ["error: NAR info file 'https://c.example/a.narinfo' is corrupt", true],
  ["error: hash mismatch importing path '/nix/store/a-1.0'", true],
  ["error: cannot add path '/nix/store/a-1.0' because it lacks a valid signature", true],
])('of a cache: %s', (output, isOther) => expect(hasOtherBytes(output)).toBe(isOther))
