// Compiles an entry point and the running Bun into one executable. The same inputs give the same bytes, in whatever directory.

import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

export type Recipe = {
  readonly name: string
  /** Paths below the repository. */
  readonly entry: string
  /** Entry points of its threads, which it loads by their path from the folder of `entry`. */
  readonly threads?: readonly string[]
  /** Everything that the bundle may take in: a change in here builds anew. */
  readonly sources: readonly string[]
  /** Optional native modules that are left out; whoever asks for one has a fallback. */
  readonly externals: readonly string[]
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
  const inputs = await digestInputs(recipe, repo)
  const record = force ? null : await readFile(recordPath, 'utf8').catch(() => null)
  if (record !== null && (await isFile(path))) {
    const built = await describe(path)
    if (record === recordOf(inputs, built.sha256)) return { ...built, fresh: false }
  }
  await mkdir(outDir, { recursive: true })
  // Its own directory, on the same file system: the compiler embeds the file's name, and a reader never sees half a file.
  const workDir = await mkdtemp(join(outDir, '.build-'))
  try {
    const made = join(workDir, recipe.name)
    await compile(recipe, { repo, outfile: made })
    const built = await describe(made)
    await rename(made, path)
    await writeFile(recordPath, recordOf(inputs, built.sha256))
    return { ...built, path, fresh: true }
  } finally {
    await rm(workDir, { recursive: true, force: true })
  }
}

const compileTimeoutMs = 300_000

/**
 * Flags of `bun build`. Identifiers are not minified: Elysia reads the names of handler parameters.
 * The runtime that runs this script is the one that goes in, so nothing is downloaded.
 */
export function compileArguments(
  { entry, threads = [], externals }: Recipe,
  { runtime, outfile }: { runtime: string; outfile: string },
) {
  return [
    'build',
    '--compile',
    '--target=bun-linux-x64',
    `--compile-executable-path=${runtime}`,
    '--format=esm',
    '--bytecode',
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
    ...externals.map(name => `--external=${name}`),
    `--outfile=${outfile}`,
    entry,
    ...threads,
  ]
}

async function compile(recipe: Recipe, { repo, outfile }: { repo: string; outfile: string }): Promise<void> {
  if (!(await isFile(join(repo, recipe.entry)))) throw new Error(`${recipe.entry}: not there`)
  const child = Bun.spawn([process.execPath, ...compileArguments(recipe, { runtime: process.execPath, outfile })], {
    cwd: repo,
    // The caller's environment has no say in what is built.
    env: { PATH: '/usr/bin:/bin', HOME: join(outfile, '..'), TMPDIR: join(outfile, '..') },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: compileTimeoutMs,
  })
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (child.exitCode !== 0) throw new Error(`compile ${recipe.entry}:\n${stdout}${stderr}`.trimEnd())
}

/** SHA-256 over names and contents of all inputs, and over the runtime's revision. */
async function digestInputs({ sources, entry, threads = [], externals }: Recipe, repo: string): Promise<string> {
  const hash = new Bun.CryptoHasher('sha256')
  hash.update(`${Bun.version} ${Bun.revision} ${entry} ${threads.join()} ${externals.join()}\n`)
  for (const path of await listFiles(repo, [...sources, ...commonSources])) {
    const content = await readFile(join(repo, path))
    hash.update(`${path} ${content.length}\n`).update(content)
  }
  return hash.digest('hex')
}

/** The lock stands for node_modules. */
const commonSources = ['bun.lock', 'package.json', 'tsconfig.json', 'scripts/build']

async function listFiles(repo: string, roots: readonly string[]): Promise<string[]> {
  const files: string[] = []
  for (const root of roots) {
    if (await isFile(join(repo, root))) files.push(root)
    const below = await readdir(join(repo, root), { recursive: true, withFileTypes: true }).catch(() => [])
    for (const entry of below) {
      if (entry.isFile()) files.push(join(entry.parentPath, entry.name).slice(repo.length + 1))
    }
  }
  return files.sort()
}

async function describe(path: string): Promise<Omit<Executable, 'fresh'>> {
  const content = await readFile(path)
  return { path, sizeBytes: content.length, sha256: new Bun.CryptoHasher('sha256').update(content).digest('hex') }
}

async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    found => found.isFile(),
    () => false,
  )
}

function recordOf(inputs: string, sha256: string): string {
  return `${inputs} ${sha256}\n`
}
