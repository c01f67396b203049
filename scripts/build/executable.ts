// Compiles an entry point and the running Bun into one executable. The same inputs give the same bytes, in whatever
// directory.

import { mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isFile, type Provenance, provenanceOf, sha256File } from './provenance.ts'

export type Recipe = {
  readonly name: string
  /** Paths below the repository. */
  readonly entry: string
  /** Entry points of its threads, which it loads by their path from the folder of `entry`. */
  readonly threads?: readonly string[]
  /** Folder from which it loads them instead. */
  readonly threadsFrom?: string
  /** Conditions of package.json's `imports`. */
  readonly conditions?: readonly string[]
  /** Makes what these conditions name, below the repository. */
  readonly prepare?: (repo: string) => Promise<void>
  /** Modules that it loads by `import()` are read only then, not at its start. */
  readonly splits?: boolean
  /** Everything that the bundle may take in: a change in here builds anew. */
  readonly sources: readonly string[]
  /** Optional native modules that are left out; whoever asks for one has a fallback. */
  readonly externals: readonly string[]
  /** How many times longer than usual the runtime's compiler waits before it compiles a function, in every thread. */
  readonly compilesLater?: number
  /** Whether it names its commit. Not a measured executable: unrelated commits must not change it. */
  readonly tellsProvenance: boolean
}

export type Executable = {
  readonly path: string
  readonly sizeBytes: number
  readonly sha256: string
  readonly fresh: boolean
}

export type BuildOptions = { readonly repo: string; readonly outDir: string; readonly force: boolean }

/** Builds unless the one in `outDir` came from the same inputs. Throws with the compiler's words. */
export async function buildExecutable(recipe: Recipe, { repo, outDir, force }: BuildOptions): Promise<Executable> {
  const path = join(outDir, recipe.name)
  const recordPath = join(outDir, `.${recipe.name}.inputs`)
  const provenance = await provenanceOf(recipe.sources, repo)
  const inputs = digestInputs(recipe, provenance)
  const record = force ? null : await readFile(recordPath, 'utf8').catch(() => null)
  if (record !== null && (await isFile(path)) && (await isFile(provenancePath(path)))) {
    const built = await describe(path)
    if (record === recordOf(inputs, built.sha256)) return { ...built, fresh: false }
  }
  await mkdir(outDir, { recursive: true })
  // The compiler embeds the file's name, and a rename on the same file system shows no reader half a file.
  const workDir = await mkdtemp(join(outDir, '.build-'))
  try {
    const made = join(workDir, recipe.name)
    await recipe.prepare?.(repo)
    await compile(recipe, { repo, outfile: made, provenance })
    const built = await describe(made)
    await rename(made, path)
    const statement: ProvenanceFile = { executableSha256: built.sha256, ...provenance }
    await writeFile(provenancePath(path), `${JSON.stringify(statement, null, 2)}\n`)
    await writeFile(recordPath, recordOf(inputs, built.sha256))
    return { ...built, path, fresh: true }
  } finally {
    await rm(workDir, { recursive: true, force: true })
  }
}

/** Provenance that a build writes beside its executable. */
export type ProvenanceFile = Provenance & { readonly executableSha256: string }

export function provenancePath(executable: string): string {
  return `${executable}.provenance.json`
}

const compileTimeoutMs = 300_000

/**
 * Flags of `bun build`. Identifiers are not minified: Elysia reads the names of handler parameters.
 * The runtime that runs this script is the one that goes in, so nothing is downloaded.
 */
export function compileArguments(
  {
    entry,
    threads = [],
    threadsFrom,
    conditions = [],
    externals,
    splits = false,
    compilesLater = 1,
    tellsProvenance,
  }: Recipe,
  { runtime, outfile, provenance }: { runtime: string; outfile: string; provenance: Provenance },
) {
  return [
    'build',
    '--compile',
    '--target=bun-linux-x64',
    `--compile-executable-path=${runtime}`,
    '--format=esm',
    '--bytecode',
    ...(splits ? ['--splitting'] : []),
    ...(compilesLater === 1 ? [] : [`--compile-jit-policy=${compilesLater}`]),
    ...conditions.map(name => `--conditions=${name}`),
    '--minify-whitespace',
    '--minify-syntax',
    '--env=disable',
    '--define=process.env.NODE_ENV="production"',
    // The bundler would put in where a package lay when it was built.
    '--define=__dirname="/"',
    '--define=__filename="/"',
    '--no-compile-autoload-dotenv',
    '--no-compile-autoload-bunfig',
    '--no-compile-autoload-tsconfig',
    '--no-compile-autoload-package-json',
    ...(tellsProvenance ? [`--define=STRONGROOM_PROVENANCE=${JSON.stringify(provenance)}`] : []),
    ...externals.map(name => `--external=${name}`),
    ...(threadsFrom === undefined ? [] : [`--root=${threadsFrom}`]),
    `--outfile=${outfile}`,
    entry,
    ...threads,
  ]
}

type Compilation = { readonly repo: string; readonly outfile: string; readonly provenance: Provenance }

async function compile(recipe: Recipe, { repo, outfile, provenance }: Compilation): Promise<void> {
  if (!(await isFile(join(repo, recipe.entry)))) throw new Error(`${recipe.entry}: not there`)
  const child = Bun.spawn(
    [process.execPath, ...compileArguments(recipe, { runtime: process.execPath, outfile, provenance })],
    {
      cwd: repo,
      // The caller's environment has no say in what is built.
      env: { PATH: '/usr/bin:/bin', HOME: join(outfile, '..'), TMPDIR: join(outfile, '..') },
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
      timeout: compileTimeoutMs,
    },
  )
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (child.exitCode !== 0) throw new Error(`compile ${recipe.entry}:\n${stdout}${stderr}`.trimEnd())
}

function digestInputs(
  {
    entry,
    threads = [],
    threadsFrom,
    conditions = [],
    externals,
    splits = false,
    compilesLater = 1,
    tellsProvenance,
  }: Recipe,
  provenance: Provenance,
) {
  const { commit, ...made } = provenance
  const told = tellsProvenance ? commit : null
  const inputs = [
    Bun.revision,
    entry,
    threads,
    threadsFrom ?? null,
    conditions,
    splits,
    compilesLater,
    externals,
    made,
    told,
  ]
  return new Bun.CryptoHasher('sha256').update(JSON.stringify(inputs)).digest('hex')
}

async function describe(path: string): Promise<Omit<Executable, 'fresh'>> {
  return { path, sizeBytes: (await stat(path)).size, sha256: await sha256File(path) }
}

function recordOf(inputs: string, sha256: string): string {
  return `${inputs} ${sha256}\n`
}
