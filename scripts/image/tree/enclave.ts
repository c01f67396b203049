// The root of the gateway's VM, and what its initrd is made of: locked packages are unpacked, and of their files those
// stay that the recipe lists, with the libraries that these need. No maintainer script runs. Effects.

import { chmod, mkdir, open, readlink, realpath, rm, stat, symlink } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'
import { filesBelow, sha256File } from '../digest.ts'
import { downloadPath } from '../downloads.ts'
import { ImageFault } from '../image-fault.ts'
import type { LockedPackage } from '../packages-lock.ts'
import type { EnclaveRecipe } from '../recipe.ts'
import { runTool } from '../tool.ts'
import { dropSetuid, layExecutable, layImageName, layOver, layText } from './root.ts'

export type EnclaveTreeOptions = {
  readonly recipe: EnclaveRecipe
  readonly packages: readonly LockedPackage[]
  readonly downloadsDir: string
  /** Directory whose files are laid over the tree. */
  readonly overlayDir: string
  readonly enclave: string
  readonly tree: string
}

/** Where strongroom-enclave is in the root, and what runs as the gateway there: its allowlist names this command. */
export const gatewayCommand = ['/usr/bin/strongroom-enclave', 'serve'] as const

/** Places to mount on, empty; the root itself is read-only. `model` is for the worker's sandbox. */
const mountPoints = ['dev', 'model', 'proc', 'run', 'sys', 'tmp'] as const
/** A merged /usr, as every package expects it. */
const usrLinks = ['bin', 'lib', 'lib64', 'sbin'] as const
/** Files that change after boot are below /run. */
const links = {
  'etc/hosts': '../run/strongroom/hosts',
  'etc/resolv.conf': '../run/strongroom/resolv.conf',
} as const

/** Throws recipe_invalid (a listed file is in no package), library_missing. */
export async function layEnclaveTree(options: EnclaveTreeOptions): Promise<void> {
  const { recipe, tree } = options
  await unpack(options.packages, options.downloadsDir, tree)
  const program = gatewayCommand[0].slice(1)
  await layExecutable(options.enclave, join(tree, program))
  await keepOnly(tree, await neededFiles(tree, [...recipe.files, program]))
  for (const name of mountPoints) await mkdir(join(tree, name), { mode: 0o755 })
  await mkdir(join(tree, 'etc'), { recursive: true, mode: 0o755 })
  for (const [path, target] of Object.entries(links)) await symlink(target, join(tree, path))
  await layOver(options.overlayDir, tree)
  await layImageName(recipe, tree)
  // So that the gateway need not read all of itself at its start.
  const sha256 = await sha256File(options.enclave)
  await layText(JSON.stringify({ sha256 }), join(tree, 'usr/lib/strongroom/gateway.json'))
  await dropSetuid(tree)
}

/** Packages over one another in an empty tree with a merged /usr. */
export async function unpack(packages: readonly LockedPackage[], downloadsDir: string, tree: string): Promise<void> {
  await mkdir(tree, { mode: 0o755 })
  for (const name of usrLinks) {
    await mkdir(join(tree, 'usr', name), { recursive: true, mode: 0o755 })
    await symlink(`usr/${name}`, join(tree, name))
  }
  for (const { sha256 } of packages) {
    await runTool(['dpkg-deb', '--extract', downloadPath(downloadsDir, sha256), tree], { timeoutMs: 120_000 })
  }
  // dpkg-deb gives the top directory the mode of each package's own.
  await chmod(tree, 0o755)
}

/** Files that match the globs, the libraries they need, and links to both. */
async function neededFiles(tree: string, globs: readonly string[]): Promise<Set<string>> {
  const needed = new Set<string>(usrLinks.map(name => join(tree, name)))
  for (const glob of globs) {
    const found = (await filesBelow(tree)).filter(path => new Bun.Glob(glob).match(relative(tree, path)))
    if (found.length === 0) throw new ImageFault('recipe_invalid', `files: ${glob}: in none of the packages`)
    for (const path of found) {
      for (const part of await chainOf(path, tree)) needed.add(part)
      if (!(await isElf(path))) continue
      for (const library of await librariesOf(path, tree))
        for (const part of await chainOf(library, tree)) needed.add(part)
    }
  }
  return needed
}

/** A file, or a link, the links that it leads over and the file at its end. */
async function chainOf(path: string, tree: string): Promise<string[]> {
  const real = join(await realpath(dirname(path)), basename(path))
  const target = await readlink(real).catch(() => null)
  if (target === null) return [real]
  return [real, ...(await chainOf(target.startsWith('/') ? join(tree, target) : join(dirname(real), target), tree))]
}

const loader = 'ld-linux-x86-64.so.2'
const elfMagic = '\x7fELF'

/** As the tree's own loader finds them, itself included. Throws library_missing. */
async function librariesOf(path: string, tree: string): Promise<string[]> {
  const inside = path.slice(tree.length)
  if (basename(path) === loader) return []
  const listed = await runTool(['chroot', tree, `/usr/lib64/${loader}`, '--list', inside], { timeoutMs: 30_000 }).catch(
    error => {
      throw new ImageFault('library_missing', `${inside}: ${error instanceof Error ? error.message : error}`, error)
    },
  )
  // `libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x…)`, or the loader's own path alone.
  return [...listed.matchAll(/^\t(?:\S+ => )?(\/\S+) \(0x/gm)].map(match => join(tree, match[1] ?? ''))
}

async function isElf(path: string): Promise<boolean> {
  const status = await stat(path).catch(() => null)
  if (status === null || !status.isFile() || status.size < elfMagic.length) return false
  await using file = await open(path, 'r')
  const { buffer } = await file.read(Buffer.alloc(elfMagic.length), 0, elfMagic.length, 0)
  return buffer.toString('latin1') === elfMagic
}

async function keepOnly(tree: string, kept: ReadonlySet<string>): Promise<void> {
  for (const path of await filesBelow(tree)) if (!kept.has(path)) await rm(path)
  await runTool(['find', tree, '-mindepth', '1', '-type', 'd', '-empty', '-delete'], { timeoutMs: 30_000 })
}
