// The kernel of the images as Debian packages it, in the versions of their locks: its headers for programs, and single
// modules. Effects: downloads into the images' cache, unpacks, runs gcc.

import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { mkdtemp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { downloadPath, fetchPackages } from '../../image/downloads.ts'
import { machineMirrors } from '../../image/mirror.ts'
import { type LockedPackage, packageOf, readPackagesLock } from '../../image/packages-lock.ts'
import { runTool } from '../../image/tool.ts'
import { repo } from '../build/image-build.ts'

const cache = process.env.STRONGROOM_CACHE ?? '/var/cache/strongroom'
const fetchTimeoutMs = 120_000
const toolTimeoutMs = 300_000

/** The recipes, whose kernels must be one for one set of headers to do. */
export const IMAGE_RECIPES = ['instance', 'inference', 'builder'] as const

/** Returns the kernel package of an image, and the headers of its lock; null if the image has none. */
export async function kernelOf(recipe: (typeof IMAGE_RECIPES)[number]) {
  const lock = await readPackagesLock(join(repo, 'guest-image', 'recipes', recipe, 'packages.lock.json'))
  const headers = lock.packages.find(({ name }) => name === 'linux-libc-dev') ?? null
  return { kernel: packageOf(lock, 'kernel'), headers }
}

export type Fetched = { readonly ok: true; readonly path: string } | { readonly ok: false; readonly reason: string }

/** Returns the package's file, or why it cannot be had. */
export async function fetchPackage(entry: LockedPackage): Promise<Fetched> {
  const downloads = join(cache, 'downloads')
  try {
    await fetchPackages(downloads, [entry], machineMirrors, fetchTimeoutMs)
    return { ok: true, path: downloadPath(downloads, entry.sha256) }
  } catch (error) {
    return { ok: false, reason: `cannot fetch ${entry.name} ${entry.version}: ${String(error)}` }
  }
}

/** Unpacks the files of a package that match one of the patterns of tar(1). */
export async function unpackPackage(path: string, directory: string, patterns: readonly string[]): Promise<void> {
  mkdirSync(directory, { recursive: true })
  const script =
    'deb=$1 dir=$2; shift 2; dpkg-deb --fsys-tarfile "$deb" | tar --extract --directory "$dir" --wildcards "$@"'
  await runTool(['sh', '-c', script, 'sh', path, directory, ...patterns], { timeoutMs: toolTimeoutMs })
}

/**
 * Returns modules of the package, uncompressed. They are kept by version, 100 kB for each kernel, because the package
 * takes ten seconds to unpack.
 */
export async function kernelModules<Name extends string>(
  { version }: LockedPackage,
  path: string,
  names: readonly Name[],
): Promise<Record<Name, Uint8Array>> {
  const kept = join(cache, 'kernel-modules', version)
  const fileOf = (name: string) => join(kept, `${name}.ko`)
  if (!names.every(name => existsSync(fileOf(name)))) {
    const work = await mkdtemp('/tmp/kernel-modules-')
    try {
      await unpackPackage(
        path,
        work,
        names.map(name => `*/${name}.ko.xz`),
      )
      const script = 'find "$1" -name "*.ko.xz" -exec mv {} "$1" ";"; xz --decompress "$1"/*.ko.xz'
      await runTool(['sh', '-c', script, 'sh', work], { timeoutMs: toolTimeoutMs })
      mkdirSync(kept, { recursive: true })
      for (const name of names) {
        // Renamed, so that a file of this name is whole.
        const partial = `${fileOf(name)}.${process.pid}`
        await Bun.write(partial, Bun.file(join(work, `${name}.ko`)))
        await rename(partial, fileOf(name))
      }
    } finally {
      await rm(work, { recursive: true, force: true })
    }
  }
  const entries = names.map(name => [name, new Uint8Array(readFileSync(fileOf(name)))] as const)
  return Object.fromEntries(entries) as Record<Name, Uint8Array>
}

export type CProgram = {
  /** Options for gcc, such as directories of headers. */
  readonly options: readonly string[]
  readonly head: string
  /** Integer expressions of C. */
  readonly expressions: readonly string[]
}

/** Returns the value of each expression as a C compiler has it, by the expression. */
export async function valuesInC({ options, head, expressions }: CProgram): Promise<Record<string, bigint>> {
  const work = await mkdtemp('/tmp/kernel-values-')
  try {
    const lines = expressions.map(text => `  printf("%lld\\n", (long long)(${text}));`)
    const source = [head, 'int printf(const char *, ...);', 'int main(void) {', ...lines, '  return 0;', '}', '']
    await Bun.write(join(work, 'values.c'), source.join('\n'))
    await runTool(['gcc', '-Wall', '-Werror', ...options, '-o', join(work, 'values'), join(work, 'values.c')], {
      timeoutMs: toolTimeoutMs,
    })
    const printed = await runTool([join(work, 'values')], { timeoutMs: toolTimeoutMs })
    const values = printed.trim().split('\n').map(BigInt)
    return Object.fromEntries(expressions.map((text, at) => [text, values[at] as bigint]))
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}
