// Builds images for tests, with a cache of their own that shares only what is addressed by digest. Effects.

import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'

export const repo = resolve(import.meta.dir, '../../..')

/** Line that the test guest prints when init has started it. */
export const agentStarted = 'test agent started'

export type ImageBench = AsyncDisposable & {
  readonly dir: string
  /** Stands for our executable in the image. */
  readonly executable: string
}

/** A directory with a small executable that runs `program`, then says that it has started; removed with its owner. */
export async function imageBench(program = ''): Promise<ImageBench> {
  const dir = await mkdtemp(join(tmpdir(), 'guest-image-bench-'))
  const source = join(dir, 'guest.ts')
  await writeFile(source, `${program}\nprocess.stdout.write('${agentStarted}\\n')\nsetInterval(() => {}, 60_000)\n`)
  return benchOf(source, dir)
}

/** As imageBench; `source` is the program's file. */
export async function programBench(source: string): Promise<ImageBench> {
  return benchOf(source, await mkdtemp(join(tmpdir(), 'guest-image-bench-')))
}

async function benchOf(source: string, dir: string): Promise<ImageBench> {
  const executable = join(dir, 'guest')
  // The bundle names its source by the path from the working directory: the same program gives the same bytes.
  await run(['bun', 'build', '--compile', source, '--outfile', executable], {}, dirname(source))
  return {
    dir,
    executable,
    async [Symbol.asyncDispose]() {
      await rm(dir, { recursive: true, force: true })
    },
  }
}

export type TestBuild = {
  readonly recipe: string
  readonly cacheDir: string
  readonly executable: string
  readonly shared: readonly ('downloads' | 'bases')[]
  readonly umask: string
  readonly env: Readonly<Record<string, string>>
}

const sharedRoot = process.env.STRONGROOM_CACHE ?? '/var/cache/strongroom'

/** Cache of images with a test's program, apart from this machine's own: kept for the next run of the test. */
export const keptTestImages = join(sharedRoot, 'test-images')

/** Runs the build script and gives the image's directory. */
export async function buildTestImage(build: TestBuild): Promise<string> {
  await mkdir(build.cacheDir, { recursive: true })
  for (const name of build.shared) {
    await mkdir(join(sharedRoot, name), { recursive: true })
    await symlink(join(sharedRoot, name), join(build.cacheDir, name)).catch(error => {
      // A cache that is kept has it.
      if (error.code !== 'EEXIST') throw error
    })
  }
  const argv = ['bun', join(repo, 'scripts', 'build-image.ts'), build.recipe, '--executable', build.executable]
  // A umask can only be given to a child through a shell.
  const printed = await run(['sh', '-c', `umask ${build.umask}; exec "$@"`, 'sh', ...argv], {
    ...build.env,
    STRONGROOM_CACHE: build.cacheDir,
  })
  return printed.trimEnd().split('\n').at(-1) ?? ''
}

/**
 * Directory of an image, from this machine's own cache where it is there. A process looks once for each: a look takes
 * seconds of a processor.
 */
export function buildCachedImage(recipe: string): Promise<string> {
  const looked = looks.get(recipe) ?? lookFor(recipe)
  looks.set(recipe, looked)
  return looked
}

const looks = new Map<string, Promise<string>>()

async function lookFor(recipe: string): Promise<string> {
  return (await run(['bun', join(repo, 'scripts', 'build-image.ts'), recipe], {})).trimEnd().split('\n').at(-1) ?? ''
}

/** Standard output of a command that must succeed. */
export async function run(argv: string[], env: Record<string, string>, cwd = process.cwd()): Promise<string> {
  const child = Bun.spawn(argv, {
    cwd,
    env: { ...process.env, ...env },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const [stdout, stderr, status] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (status !== 0) throw new Error(`${argv.join(' ')}: status ${status}\n${stderr}`)
  return stdout
}
