// Goal: whoever installs the package gets it: by import and by require, in TypeScript's ways to resolve it, from
// bundlers; and each entry loads no more than it needs.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { buildVerifierPackage } from '../../../scripts/build/verifier-package.ts'
import { gzipBytes } from '../../../scripts/build-verifier.ts'
import { runCommand } from '../../../scripts/lib/command.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { root } from '../../meta/tree.ts'
import { type PackageProject, preparePackage } from '../../rigs/package/package-project.ts'
import { nodeMajor } from '../../rigs/portable/runtimes.ts'

let project: PackageProject
const undo = new AsyncDisposableStack()
beforeAll(async () => {
  project = undo.use(await preparePackage())
}, 600_000)
afterAll(() => undo.disposeAsync())

const noNode = skipUnless(nodeMajor() >= 20, 'needs Node 20 or later')
const entries = ['@strongroom/verifier', '@strongroom/verifier/report', '@strongroom/verifier/evidence'] as const
const packageDir = () => join(project.folder, 'node_modules/@strongroom/verifier')

// Goal: the tools that packages are judged by find nothing: not even a suggestion.
describe('judges', () => {
  test('attw: types are right for every entry, however it is resolved', async () => {
    const found = await checkPackage(createPackageFromTarballData(project.tarball))
    expect(found).toMatchObject({ packageName: '@strongroom/verifier', types: { kind: 'included' } })
    if (!found.types) return
    // Node 10 knows no `exports`, and this package wants Node 20.
    const problems = found.problems.filter(
      problem => !('resolutionKind' in problem && problem.resolutionKind === 'node10'),
    )
    expect(problems).toEqual([])
    expect(Object.keys(found.entrypoints).sort()).toEqual(['.', './evidence', './package.json', './report'])
  }, 240_000)

  test('publint', async () => {
    const pack = { tarball: Uint8Array.from(project.tarball).buffer }
    const { messages, pkg } = await publint({ pack, level: 'suggestion', strict: true })
    expect(messages.map(message => formatMessage(message, pkg))).toEqual([])
  }, 240_000)
})

test('goal: the manifest is ready for a publication with provenance, and names sources only where it is told them', async () => {
  const manifest = JSON.parse(readFileSync(join(packageDir(), 'package.json'), 'utf8'))
  expect(manifest).toMatchObject({
    license: 'UNLICENSED',
    sideEffects: false,
    type: 'module',
    publishConfig: { access: 'public', provenance: true },
  })
  expect([manifest.repository, manifest.dependencies, manifest.scripts, manifest.private]).toEqual([
    ...[undefined, undefined, undefined, undefined],
  ])
  const folder = mkdtempSync(join(tmpdir(), 'strongroom-package-'))
  try {
    await buildVerifierPackage(folder, { repository: 'git+https://git.example/strongroom.git' })
    const named = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    expect(named.repository).toEqual({ type: 'git', url: 'git+https://git.example/strongroom.git' })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}, 240_000)

// Goal: one copy of every class, so that `instanceof` holds for whoever requires here and imports there.
describe('import and require', () => {
  const program = [
    "const { createRequire } = await import('node:module')",
    'const require = createRequire(import.meta.url)',
    `for (const entry of ${JSON.stringify(entries)}) {`,
    '  const [required, imported] = [require(entry), await import(entry)]',
    '  const names = Object.keys(imported).sort()',
    '  const isSame = names.every(name => imported[name] === required[name])',
    '  const isShared = required.Malformed === require("@strongroom/verifier").Malformed',
    '  console.log(entry, names.length > 0, isSame, isShared)',
    '}',
  ].join('\n')
  const cases = [
    ['bun', process.execPath, false],
    ['node', 'node', noNode],
  ] as const

  for (const [name, command, isLeftOut] of cases) {
    test.skipIf(isLeftOut)(`give the same objects in ${name}`, async () => {
      const path = join(project.folder, 'both.mjs')
      writeFileSync(path, program)
      const { exitCode, output } = await runCommand([command, path], { timeoutMs: 240_000, cwd: project.folder })
      expect([exitCode, output.trim().split('\n')]).toEqual([...[0, entries.map(entry => `${entry} true true true`)]])
    })
  }

  test.skipIf(noNode)('a CommonJS program of Node runs', async () => {
    const path = join(project.folder, 'plain.cjs')
    const lines = [
      "const { attestedFetch, OptionError } = require('@strongroom/verifier')",
      "try { attestedFetch({ url: 'http://a', policy: '{}' }) } catch (error) { console.log(error instanceof OptionError) }",
    ]
    writeFileSync(path, lines.join('\n'))
    const { output } = await runCommand(['node', path], { timeoutMs: 240_000, cwd: project.folder })
    expect(output.trim()).toBe('true')
  })
})

// Goal: TypeScript finds the types of every entry, for importers and for those who require it.
describe('TypeScript resolves it', () => {
  const source = [
    "import { type AttestedFetch, attestedFetch, VerificationError } from '@strongroom/verifier'",
    "import { type InstanceVerdict, verifyInstance } from '@strongroom/verifier/evidence'",
    "import { decodeReport, type SnpReport } from '@strongroom/verifier/report'",
    "export const one: AttestedFetch = attestedFetch({ url: 'https://a', policy: '{}' })",
    'export const two: SnpReport = decodeReport(new Uint8Array(1184))',
    'export const three: (...given: Parameters<typeof verifyInstance>) => Promise<InstanceVerdict> = verifyInstance',
    'export const four = (error: unknown) => error instanceof VerificationError && error.failed.length',
  ].join('\n')

  // One compilation for the modules of one way to resolve: an importer, one that requires, and the same with a mistake,
  // without which a compiler that finds no types at all would pass.
  test.each([
    ['node16', 'node16', ['consumer.mts', 'consumer.cts']],
    ['nodenext', 'nodenext', ['consumer.mts', 'consumer.cts']],
    ['bundler', 'esnext', ['consumer.ts']],
    ['bundler', 'preserve', ['consumer.cts']],
  ])(
    '%s, module %s, %s',
    async (moduleResolution, module, names) => {
      const wrong = names.map(name => `wrong-${name}`)
      for (const name of names) {
        writeFileSync(join(project.folder, name), source)
        writeFileSync(join(project.folder, `wrong-${name}`), source.replace("policy: '{}'", 'policy: 7'))
      }
      const compilerOptions = {
        ...{ moduleResolution, module, strict: true, noEmit: true, target: 'ES2023', skipLibCheck: false },
        ...{ lib: ['ES2023', 'DOM', 'DOM.Iterable', 'DOM.AsyncIterable'], types: [] },
      }
      const files = [...names, ...wrong]
      writeFileSync(join(project.folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }))
      const argv = [process.execPath, join(root, 'node_modules/typescript/bin/tsc'), '--project', project.folder]
      const { output } = await runCommand([...argv, '--pretty', 'false'], { timeoutMs: 240_000 })
      const errors = [...output.matchAll(/^(?:.*\/)?([^/\s]+)\(\d+,\d+\): error (TS\d+)/gm)]
      const found = errors.map(([, file, code]) => `${file} ${code}`).sort()
      expect([found, output.match(/error TS/g)?.length]).toEqual([
        wrong.map(file => `${file} TS2322`).sort(),
        wrong.length,
      ])
    },
    240_000,
  )
})

// Goal: a page loads what it uses. Bytes of the minified module, gzipped, as they go over the network.
describe('sizes', () => {
  async function pageBytes(source: string): Promise<number> {
    const entry = join(project.folder, 'sized.mjs')
    writeFileSync(entry, source)
    const { outputs } = await Bun.build({ entrypoints: [entry], target: 'browser', format: 'esm', minify: true })
    expect(outputs).toHaveLength(1)
    return gzipBytes((await outputs[0]?.text()) ?? '')
  }

  test('the whole of the page’s entry', async () => {
    const bytes = await pageBytes("export * from '@strongroom/verifier'")
    expect(bytes).toBeGreaterThan(50_000)
    // 110,095 bytes with all error codes of the gateway.
    expect(bytes).toBeLessThanOrEqual(110_200)
  })

  test('decodeReport alone', async () => {
    const bytes = await pageBytes("export { decodeReport } from '@strongroom/verifier/report'")
    expect(bytes).toBeGreaterThan(1_000)
    expect(bytes).toBeLessThanOrEqual(12_000)
  })

  test('without a bundler: the files of the entry report', () => {
    const files = ['report.js']
    for (const file of files) {
      const text = readFileSync(join(packageDir(), 'web', file), 'utf8')
      const more = new Bun.Transpiler().scanImports(text).map(({ path }) => path.replace(/^\.\//, ''))
      files.push(...more.filter(name => !files.includes(name)))
    }
    const bytes = files.reduce((sum, file) => sum + gzipBytes(readFileSync(join(packageDir(), 'web', file), 'utf8')), 0)
    expect(bytes).toBeLessThanOrEqual(12_000)
  })
})
