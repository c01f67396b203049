// Makes the npm package of the relying party: one module for Bun and Node, one for pages, one file of types, the
// licences of bundled packages. Effects: writes the folder anew, and a temporary one for the types; starts the
// compiler. The same sources give the same bytes.

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { rollup } from 'rollup'
import { dts } from 'rollup-plugin-dts'
import { name as strongroom, version } from '../../package.json' with { type: 'json' }
import { runCommand } from '../lib/command.ts'

const repo = resolve(import.meta.dir, '../..')
const entries = join(repo, 'src/verifier/fetch')

/** Below the output directory. */
export const packageFolder = 'verifier-package'
export const packageName = `@${strongroom}/verifier`

export type PackageFile = { readonly name: string; readonly sizeBytes: number; readonly sha256: string }

/** Throws when a bundle would be more than one file, or the types do not compile. */
export async function buildVerifierPackage(folder: string): Promise<readonly PackageFile[]> {
  const [node, browser, types] = await Promise.all([bundle('node'), bundle('browser'), bundleTypes()])
  const files = {
    'package.json': `${JSON.stringify(MANIFEST, null, 2)}\n`,
    'README.md': readFileSync(join(repo, 'src/verifier/README.md'), 'utf8'),
    'LICENSES.txt': licences(new Set([...node.inputs, ...browser.inputs])),
    'node.js': node.text,
    'browser.js': browser.text,
    'index.d.ts': types,
  } as const satisfies Readonly<Record<string, string>>
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  return Object.entries(files).map(([name, text]) => {
    const bytes = Buffer.from(text)
    writeFileSync(join(folder, name), bytes)
    return { name, sizeBytes: bytes.length, sha256: new Bun.CryptoHasher('sha256').update(bytes).digest('hex') }
  })
}

/** `default` is for runtimes without Node's modules and without a condition: it needs only the web platform. */
const MANIFEST = {
  name: packageName,
  version,
  description: 'Verifies Strongroom inference gateways; a fetch that speaks with an attested one and nobody else',
  license: 'UNLICENSED',
  type: 'module',
  sideEffects: false,
  engines: { node: '>=20', bun: '>=1.4.5' },
  exports: {
    '.': {
      types: './index.d.ts',
      browser: './browser.js',
      bun: './node.js',
      node: './node.js',
      default: './browser.js',
    },
    './package.json': './package.json',
  },
  types: './index.d.ts',
  files: ['node.js', 'browser.js', 'index.d.ts', 'LICENSES.txt'],
} as const

type Bundle = { readonly text: string; readonly inputs: readonly string[] }

/** Not minified: who installs it can read what it runs. */
async function bundle(target: 'node' | 'browser'): Promise<Bundle> {
  const entry = join(entries, `${target}.ts`)
  const { outputs, metafile } = await Bun.build({
    entrypoints: [entry],
    root: repo,
    target,
    format: 'esm',
    metafile: true,
  })
  const [output, ...more] = outputs
  if (output === undefined || more.length > 0) throw new Error(`${entry}: not one bundle`)
  return { text: await output.text(), inputs: Object.keys(metafile?.inputs ?? {}) }
}

/** The text of each bundled package's licence, as each asks for. */
function licences(inputs: ReadonlySet<string>): string {
  const owners = [...inputs].flatMap(path => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? [])
  const texts = [...new Set(owners)].sort().map(owner => {
    const folder = join(repo, 'node_modules', owner)
    const manifest: { version: string; license: string } = JSON.parse(
      readFileSync(join(folder, 'package.json'), 'utf8'),
    )
    const file = readdirSync(folder).find(name => /^licen[cs]e(?:\.(?:md|txt))?$/i.test(name))
    if (file === undefined) throw new Error(`${owner}: no licence beside it`)
    const head = `${owner} ${manifest.version} (${manifest.license})`
    return `${head}\n${'='.repeat(head.length)}\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`
  })
  return `This package holds code of these packages.\n\n${texts.join('\n')}`
}

const compilerTimeoutMs = 120_000

/** Types of both halves, with those taken from packages put in, so that nothing else is needed. */
async function bundleTypes(): Promise<string> {
  const work = mkdtempSync(join(tmpdir(), 'strongroom-types-'))
  try {
    const project = join(work, 'tsconfig.json')
    writeFileSync(project, JSON.stringify(projectOf(work)))
    const argv = [process.execPath, join(repo, 'node_modules/typescript/bin/tsc'), '--project', project]
    const { exitCode, output } = await runCommand([...argv, '--pretty', 'false'], { timeoutMs: compilerTimeoutMs })
    if (exitCode !== 0) throw new Error(`types: ${output}`)
    // Beside the types, so that what they import is found.
    symlinkSync(join(repo, 'node_modules'), join(work, 'node_modules'))
    const build = await rollup({
      input: join(work, 'types/verifier/fetch/browser.d.ts'),
      plugins: [dts({ tsconfig: project, includeExternal: ['@sinclair/typebox'] })],
      onwarn: ({ message }) => {
        throw new Error(`types: ${message}`)
      },
    })
    const { output: chunks } = await build.generate({ format: 'es' })
    await build.close()
    const [chunk, ...more] = chunks
    if (more.length > 0) throw new Error('types: not one file')
    return chunk.code
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

function projectOf(work: string) {
  return {
    // Libraries of pages, and the language of Node 20.
    extends: join(entries, 'tsconfig.json'),
    compilerOptions: {
      noEmit: false,
      declaration: true,
      emitDeclarationOnly: true,
      rootDir: join(repo, 'src'),
      outDir: join(work, 'types'),
    },
    files: [join(entries, 'browser.ts')],
    include: [],
  }
}
