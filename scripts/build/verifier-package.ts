// Makes the npm package of the relying party. Effects: writes the folder anew, and a temporary one for the types;
// starts the compiler. The same sources give the same bytes.
//
//   web/NAME.js     ES modules for pages, with chunks that they share: they need only the web platform
//   node/NAME.cjs   CommonJS for Bun and Node, with chunks; node/NAME.js are ES modules that export the same objects,
//                   so that `instanceof` holds for whoever both imports and requires the package
//   NAME.d.ts, NAME.d.cts   types of each entry, for importers and for those who require it
//
// Not minified: who installs it can read what it runs.

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { type RollupBuild, rollup } from 'rollup'
import { dts } from 'rollup-plugin-dts'
import { name as strongroom, version } from '../../package.json' with { type: 'json' }
import { runCommand } from '../lib/command.ts'

const repo = resolve(import.meta.dir, '../..')
const sources = join(repo, 'src/verifier/fetch')

/** Below the output directory. */
export const packageFolder = 'verifier-package'
export const packageName = `@${strongroom}/verifier`

export type PackageFile = { readonly name: string; readonly sizeBytes: number; readonly sha256: string }

/** Entries of the package and their modules in `sources`; types are those of the half for pages. */
const ENTRIES = {
  index: { web: 'browser', node: 'node' },
  report: { web: 'report-entry', node: 'report-entry' },
  evidence: { web: 'evidence-entry', node: 'evidence-entry' },
} as const satisfies Readonly<Record<string, Readonly<Record<Half, string>>>>

type Half = 'web' | 'node'
type EntryName = keyof typeof ENTRIES
const entryNames = Object.keys(ENTRIES) as readonly EntryName[]

/** Text by file name. */
type Files = Readonly<Record<string, string>>

/** `repository`: the address of the sources, which a publication with provenance needs. Left out: none is named. */
export type PackageOptions = { readonly repository?: string | undefined }

/** Throws when the types do not compile. */
export async function buildVerifierPackage(
  folder: string,
  { repository }: PackageOptions = {},
): Promise<readonly PackageFile[]> {
  const [web, node, types] = await Promise.all([bundle('web'), bundle('node'), bundleTypes()])
  const files: Files = {
    'package.json': `${JSON.stringify(manifestOf(repository), null, 2)}\n`,
    'README.md': readFileSync(join(repo, 'src/verifier/README.md'), 'utf8'),
    LICENSE: readFileSync(join(repo, 'LICENSE'), 'utf8'),
    'LICENSES.txt': licences(new Set([...web.inputs, ...node.inputs])),
    ...inFolder('web', web.files),
    ...inFolder('node', await commonJs(node.files)),
    ...types,
  }
  rmSync(folder, { recursive: true, force: true })
  return Object.entries(files).map(([name, text]) => {
    const bytes = Buffer.from(text)
    mkdirSync(dirname(join(folder, name)), { recursive: true })
    writeFileSync(join(folder, name), bytes)
    return { name, sizeBytes: bytes.length, sha256: new Bun.CryptoHasher('sha256').update(bytes).digest('hex') }
  })
}

function manifestOf(repository: string | undefined) {
  return {
    name: packageName,
    version,
    description: 'Verifies Strongroom inference gateways; a fetch that speaks with an attested one and nobody else',
    keywords: ['attestation', 'sev-snp', 'confidential-computing', 'openai', 'fetch'],
    license: 'UNLICENSED',
    ...(repository === undefined ? {} : { repository: { type: 'git', url: repository } }),
    type: 'module',
    sideEffects: false,
    engines: { node: '>=20', bun: '>=1.4.5' },
    exports: {
      ...Object.fromEntries(entryNames.map(name => [name === 'index' ? '.' : `./${name}`, conditionsOf(name)])),
      './package.json': './package.json',
    },
    main: './node/index.cjs',
    module: './web/index.js',
    types: './index.d.ts',
    files: ['web', 'node', '*.d.ts', '*.d.cts', 'LICENSE', 'LICENSES.txt'],
    publishConfig: { access: 'public', provenance: true },
  } as const
}

/** `default` is for runtimes without Node's modules and without a condition: it needs only the web platform. */
function conditionsOf(name: EntryName) {
  const [types, web, node] = [`./${name}.d.ts`, `./web/${name}.js`, `./node/${name}.js`]
  return {
    browser: { types, default: web },
    require: { types: `./${name}.d.cts`, default: `./node/${name}.cjs` },
    bun: { types, default: node },
    node: { types, default: node },
    default: { types, default: web },
  } as const
}

function inFolder(folder: string, files: Files): Files {
  return Object.fromEntries(Object.entries(files).map(([name, text]) => [`${folder}/${name}`, text]))
}

type Bundle = { readonly files: Files; readonly inputs: readonly string[] }

/** ES modules of one half, a file for each entry and one for each part that entries share. */
async function bundle(half: Half): Promise<Bundle> {
  const { outputs, metafile } = await Bun.build({
    entrypoints: entryNames.map(name => join(sources, `${ENTRIES[name][half]}.ts`)),
    root: sources,
    target: half === 'web' ? 'browser' : 'node',
    format: 'esm',
    splitting: true,
    naming: { entry: '[name].js', chunk: 'chunk-[hash].js' },
    metafile: true,
  })
  const nameOf = (file: string) => entryNames.find(name => `${ENTRIES[name][half]}.js` === file)
  const files = await Promise.all(
    outputs.map(async output => {
      const file = basename(output.path)
      const entry = nameOf(file)
      return [entry === undefined ? file : `${entry}.js`, await output.text()] as const
    }),
  )
  return { files: Object.fromEntries(files), inputs: Object.keys(metafile?.inputs ?? {}) }
}

/** The same modules as CommonJS, and an ES module beside each entry that exports its objects. */
async function commonJs(files: Files): Promise<Files> {
  const build = await rollup({
    input: Object.fromEntries(entryNames.map(name => [name, `${name}.js`])),
    external: /^node:/,
    plugins: [
      {
        name: 'in-memory',
        resolveId: source => (source.startsWith('node:') ? null : basename(source)),
        load: id => files[id] ?? null,
      },
    ],
    onwarn: ({ message }) => {
      throw new Error(`CommonJS: ${message}`)
    },
  })
  const { output } = await outputOf(build, {
    format: 'cjs',
    exports: 'named',
    entryFileNames: '[name].cjs',
    chunkFileNames: 'chunk-[hash].cjs',
  })
  const wrappers = output.flatMap(chunk =>
    chunk.type === 'chunk' && chunk.isEntry
      ? [[`${chunk.name}.js`, `export {\n  ${chunk.exports.join(',\n  ')}\n} from './${chunk.fileName}'\n`] as const]
      : [],
  )
  const chunks = output.flatMap(chunk => (chunk.type === 'chunk' ? [[chunk.fileName, chunk.code] as const] : []))
  return Object.fromEntries([...chunks, ...wrappers])
}

async function outputOf(build: RollupBuild, options: Parameters<RollupBuild['generate']>[0]) {
  try {
    return await build.generate(options)
  } finally {
    await build.close()
  }
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

/** Types of each entry, with those taken from packages put in, so that nothing else is needed. */
async function bundleTypes(): Promise<Files> {
  const work = mkdtempSync(join(tmpdir(), 'strongroom-types-'))
  try {
    const project = join(work, 'tsconfig.json')
    writeFileSync(project, JSON.stringify(projectOf(work)))
    const argv = [process.execPath, join(repo, 'node_modules/typescript/bin/tsc'), '--project', project]
    const { exitCode, output } = await runCommand([...argv, '--pretty', 'false'], { timeoutMs: compilerTimeoutMs })
    if (exitCode !== 0) throw new Error(`types: ${output}`)
    // Beside the types, so that what they import is found.
    symlinkSync(join(repo, 'node_modules'), join(work, 'node_modules'))
    const files: [name: string, text: string][] = []
    for (const name of entryNames) {
      const text = await typesOf(join(work, 'types/verifier/fetch', `${ENTRIES[name].web}.d.ts`), project)
      // One text for both: each says how it is loaded by its ending alone.
      files.push([`${name}.d.ts`, text], [`${name}.d.cts`, text])
    }
    return Object.fromEntries(files)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

/** In one file. */
async function typesOf(input: string, tsconfig: string): Promise<string> {
  const build = await rollup({
    input,
    plugins: [dts({ tsconfig, includeExternal: ['@sinclair/typebox'] })],
    onwarn: ({ message }) => {
      throw new Error(`types: ${message}`)
    },
  })
  const { output } = await outputOf(build, { format: 'es' })
  const [chunk, ...more] = output
  if (more.length > 0) throw new Error('types: not one file')
  return chunk.code
}

function projectOf(work: string) {
  return {
    // Libraries of pages, and the language of Node 20.
    extends: join(sources, 'tsconfig.json'),
    compilerOptions: {
      noEmit: false,
      declaration: true,
      emitDeclarationOnly: true,
      rootDir: join(repo, 'src'),
      outDir: join(work, 'types'),
    },
    files: entryNames.map(name => join(sources, `${ENTRIES[name].web}.ts`)),
    include: [],
  }
}
