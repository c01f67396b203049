// The measured initrd: busybox, dmsetup with its libraries, the modules that reach the root, and our init in two
// parts. Reads trees, writes one file.

import { realpath, stat, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { readChecked } from '../checked-json.ts'
import type { KernelModule } from '../kernel.ts'
import type { Recipe } from '../recipe.ts'
import { type CpioEntry, cpioArchive } from './cpio.ts'

export const InitrdFiles = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    /** Parents before children. */
    directories: Type.Array(Type.String()),
    links: Type.Record(Type.String(), Type.String()),
    /** Path in the initrd to path in the root tree. */
    files: Type.Record(Type.String(), Type.String()),
  },
  { additionalProperties: false },
)
export type InitrdFiles = Static<typeof InitrdFiles>

export type InitrdOptions = {
  /** Directory of `init`, its second part and `files.json`. */
  readonly sourceDir: string
  /** Init's second part, once the root is mapped: the file of this name. */
  readonly kind: Recipe['kind']
  /** Where the listed files are taken from. */
  readonly tree: string
  /** Modules that reach the root, and modules of init's second part; each in loading order. */
  readonly modules: Readonly<Record<'early' | 'boot', readonly KernelModule[]>>
  readonly mtimeSeconds: number
  readonly target: string
}

/** Writes the initrd uncompressed: unpacking costs more time than reading, and the list bounds its size. */
export async function buildInitrd(options: InitrdOptions): Promise<void> {
  const listed = await readChecked(InitrdFiles, join(options.sourceDir, 'files.json'))
  const entries: CpioEntry[] = listed.directories.map(path => ({ kind: 'directory', path }))
  // The kernel opens it for init before init can mount /dev.
  entries.push({ kind: 'device', path: 'dev/console', major: 5, minor: 1 })
  for (const [path, target] of Object.entries(listed.links)) entries.push({ kind: 'link', path, target })
  for (const [path, source] of Object.entries(listed.files)) {
    const from = await realpath(join(options.tree, source))
    const executable = ((await stat(from)).mode & 0o100) !== 0
    entries.push({ kind: 'file', path, bytes: await Bun.file(from).bytes(), executable })
  }
  for (const [dir, modules] of [
    ['modules', options.modules.early],
    ['boot-modules', options.modules.boot],
  ] as const) {
    for (const module of modules) {
      entries.push({ kind: 'file', path: `${dir}/${basename(module.path)}`, bytes: module.bytes, executable: false })
    }
    entries.push({ kind: 'file', path: `${dir}/order`, bytes: loadingOrder(modules), executable: false })
  }
  for (const [path, source, executable] of [
    ['init', 'init', true],
    ['continue', options.kind, false],
  ] as const) {
    const bytes = await Bun.file(join(options.sourceDir, source)).bytes()
    entries.push({ kind: 'file', path, bytes, executable })
  }
  await writeFile(options.target, cpioArchive(entries, options.mtimeSeconds), { mode: 0o644 })
}

/** One file name a line. */
export function loadingOrder(modules: readonly KernelModule[]): Uint8Array {
  return new TextEncoder().encode(modules.map(module => `${basename(module.path)}\n`).join(''))
}
