// The attestation library and the verifier run unchanged in Bun and in Node, and their bundle for browsers needs
// nothing but what browsers have. The same suite in a browser: test/attest/portable-chromium.slow.test.ts.

import { beforeAll, describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { builtinModules } from 'node:module'
import { resolve } from 'node:path'
import { type BrowserBundle, browserBundle, gzipBytes, VERIFIER_MODULES } from '../../scripts/build-verifier.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { codeOf, importsOf } from '../meta/source.ts'
import { canonicalJson } from '../rigs/portable/canonical.ts'
import { expectResults } from '../rigs/portable/expectations.ts'
import { Vectors } from '../rigs/portable/input.ts'
import { suiteInput } from '../rigs/portable/prepare.ts'
import { reportSuite } from '../rigs/portable/report-suite.ts'
import { bundledSuite, nodeMajor, runScript, type ScriptRuntime } from '../rigs/portable/runtimes.ts'
import { runSuite } from '../rigs/portable/suite.ts'

const repo = resolve(import.meta.dir, '../..')

describe('one suite', () => {
  let input = ''
  let suite: BrowserBundle | null = null
  let here = ''
  beforeAll(async () => {
    input = await suiteInput()
    suite = await bundledSuite()
    here = await runSuite(input)
  })

  // Goal: what the library says of the vectors is what their sources say.
  test('expected verdicts', async () => {
    await expectResults(here)
  })

  const sameIn = (runtime: ScriptRuntime) => async () => {
    const results = await runScript(runtime, suite?.text ?? '', input)
    expect(JSON.parse(results)).toEqual(JSON.parse(here))
    expect(results === here).toBe(true)
  }

  // Goal: every field, digest, verdict and reason is the same in the bundle as in the sources.
  test('Bun', sameIn('bun'))

  const noNode = skipUnless(nodeMajor() >= 20, 'needs Node 20 or later')

  // Goal: and in Node.
  test.skipIf(noNode)('Node', sameIn('node'))

  // Goal: and with no global object but what web.d.ts names, without eval and WebAssembly.
  test.skipIf(noNode)('bare Node', sameIn('node-bare'))

  // Goal: the comparison can fail: one byte of one vector changes the results.
  test('another input', async () => {
    const changed = JSON.parse(input)
    const path = 'reports/turin-v5.bin'
    const bytes = Buffer.from(changed.files[path], 'base64')
    bytes[0x90] = (bytes[0x90] ?? 0) ^ 1
    changed.files[path] = bytes.toString('base64')
    // The suite of reports alone: the vector is of no other.
    const reports = JSON.parse(canonicalJson(await reportSuite(new Vectors(JSON.stringify(changed)))))
    const results = canonicalJson({ ...JSON.parse(here), reports })
    expect(results === here).toBe(false)
    await expect(expectResults(results)).rejects.toThrow()
  })
})

/** A few modules that each bundle for pages must have, and some that it must not. */
const CONTENTS = {
  'strongroom-verify.js': {
    gzipBytesMax: 85_000,
    has: ['attest/report/report.ts', 'verifier/gateway.ts', 'verifier/response.ts', 'verifier/instance.ts'],
    lacks: ['attest/tpm/vtpm.ts', 'attest/igvm/measure.ts', 'attest/launch/digest.ts', 'attest/receipt/issue.ts'],
  },
  'strongroom-tpm.js': {
    gzipBytesMax: 17_500,
    has: ['attest/tpm/vtpm.ts', 'attest/tpm/paravisor.ts', 'attest/tpm/event-log.ts'],
    lacks: ['verifier/gateway.ts', 'attest/launch/digest.ts'],
  },
  'strongroom-measure.js': {
    gzipBytesMax: 44_000,
    has: ['attest/launch/digest.ts', 'attest/igvm/measure.ts', 'attest/verity/tree.ts'],
    lacks: ['verifier/gateway.ts', 'attest/tpm/vtpm.ts'],
  },
} as const satisfies Record<keyof typeof VERIFIER_MODULES, unknown>

describe.each(Object.entries(VERIFIER_MODULES))('the bundle %s', (name, entry) => {
  const { has, lacks, gzipBytesMax } = CONTENTS[name as keyof typeof CONTENTS]
  /** Packages that may be in it. None of them makes certificates, and none comes from Node. */
  const packages = ['@noble/hashes', '@noble/curves', '@noble/post-quantum', '@sinclair/typebox']
  let bundle: BrowserBundle = { text: '', inputs: new Map() }
  beforeAll(async () => {
    bundle = await browserBundle(entry)
  })

  // Goal: it is one file: nothing is imported, required from Node or filled in for it.
  test('imports', () => {
    expect(new Bun.Transpiler().scanImports(bundle.text)).toEqual([])
    expect(bundle.text).not.toMatch(/["'`](?:node|bun):/)
    const foreign = [...bundle.inputs.keys()].filter(path => {
      const owner = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]
      if (owner !== undefined) return !packages.includes(owner)
      return !/^src\/(?:attest|base|contract|verifier)\/[a-z0-9./-]+\.(?:ts|pem)$/.test(path)
    })
    expect(foreign).toEqual([])
    for (const path of has) expect(bundle.inputs.get(`src/${path}`), path).toBeGreaterThan(0)
    // Goal: a page loads no code that it does not use.
    for (const path of lacks) expect(bundle.inputs.get(`src/${path}`) ?? 0, path).toBe(0)
  })

  // Goal: no source in it, ours or a package's, imports what only Bun and Node have: the bundler would put an empty
  // object in its place.
  test('imports of its sources', () => {
    const found = [...bundle.inputs.keys()].flatMap(path =>
      importsOf(readFileSync(resolve(repo, path), 'utf8'))
        .filter(({ specifier }) => /^(?:node|bun):/.test(specifier) || builtins.has(specifier))
        .map(({ specifier }) => `${path}: ${specifier}`),
    )
    expect(found).toEqual([])
  })

  // Goal: our own sources in it name no global of Bun's or Node's.
  test('globals', () => {
    const own = [...bundle.inputs.keys()].filter(path => path.startsWith('src/'))
    expect(own.length).toBeGreaterThan(20)
    const found = own.filter(path => runtimeGlobal.test(codeOf(readFileSync(resolve(repo, path), 'utf8'))))
    expect(found).toEqual([])
  })

  // Goal: packages look whether a runtime's global is there before they use it: each that names one also asks for its
  // type.
  test('globals of packages', () => {
    const named = [...bundle.inputs.keys()].flatMap(path => {
      const code = path.startsWith('node_modules/') ? codeOf(readFileSync(resolve(repo, path), 'utf8')) : ''
      const names = new Set([...code.matchAll(new RegExp(runtimeGlobal, 'g'))].map(match => match[0]))
      return [...names].filter(name => !new RegExp(`typeof ${name}\\b`).test(code)).map(name => `${path}: ${name}`)
    })
    expect(named).toEqual([])
  })

  // Goal: a page loads it in one go.
  test('size', () => {
    expect(gzipBytes(bundle.text)).toBeLessThanOrEqual(gzipBytesMax)
  })
})

const builtins = new Set(['bun', ...builtinModules])
const runtimeGlobal =
  /(?<![.\w$])(?:Bun|Buffer|process|require|__dirname|__filename|setImmediate)\b(?!\s*[:(]\s*(?:\w|\)|\{))/
