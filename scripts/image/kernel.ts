// Kernel and modules out of the kernel package. The package is only unpacked, never installed: its hooks would make an
// initrd of their own. Effects.

import { cp, mkdir, readdir, writeFile } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'
import { filesBelow } from './digest.ts'
import { ImageFault } from './image-fault.ts'
import { runTool } from './tool.ts'

export type Kernel = {
  readonly version: string
  /** The bootable file. */
  readonly path: string
  /** Module name (as given in modules.json) to its compressed file. */
  readonly modules: ReadonlyMap<string, string>
  /** Directory of the modules in the unpacked package. */
  readonly modulesDir: string
}

/** A module out of the package, ready to be loaded. */
export type KernelModule = {
  readonly name: string
  /** Path below the version's directory, without the compression suffix. */
  readonly path: string
  readonly bytes: Uint8Array
  readonly depends: readonly string[]
  readonly aliases: readonly string[]
}

/** Unpacks a kernel package into `workDir`. */
export async function unpackKernel(debPath: string, workDir: string): Promise<Kernel> {
  await mkdir(workDir, { recursive: true })
  await runTool(['dpkg-deb', '--extract', debPath, workDir], { timeoutMs: 120_000 })
  const modulesRoot = join(workDir, 'usr', 'lib', 'modules')
  const [version, ...others] = await readdir(modulesRoot)
  if (version === undefined || others.length > 0) throw new ImageFault('recipe_invalid', `${debPath}: not one kernel`)
  const modulesDir = join(modulesRoot, version)
  const files = (await filesBelow(modulesDir)).filter(path => path.endsWith('.ko.xz'))
  const modules = new Map(files.map(path => [sameName(basename(path, '.ko.xz')), path]))
  return { version, path: join(workDir, 'boot', `vmlinuz-${version}`), modules, modulesDir }
}

/** The named modules with all they depend on, in an order in which they can be loaded. Throws module_missing. */
export async function moduleClosure(kernel: Kernel, names: readonly string[]): Promise<KernelModule[]> {
  const ordered = new Map<string, KernelModule>()
  const visit = async (name: string): Promise<void> => {
    if (ordered.has(sameName(name))) return
    const module = await readModule(kernel, name)
    for (const needed of module.depends) await visit(needed)
    ordered.set(sameName(name), module)
  }
  for (const name of names) await visit(name)
  return [...ordered.values()]
}

/** Writes modules uncompressed below `dir`, with the tables that modprobe reads. */
export async function installModules(modules: readonly KernelModule[], dir: string): Promise<void> {
  for (const module of modules) {
    await mkdir(dirname(join(dir, module.path)), { recursive: true })
    await writeFile(join(dir, module.path), module.bytes)
  }
  const pathOf = new Map(modules.map(module => [sameName(module.name), module.path]))
  const depends = modules.map(module =>
    `${module.path}: ${module.depends.map(name => pathOf.get(sameName(name))).join(' ')}`.trimEnd(),
  )
  const aliases = modules.flatMap(module => module.aliases.map(alias => `alias ${alias} ${sameName(module.name)}`))
  await writeFile(join(dir, 'modules.dep'), `${depends.sort().join('\n')}\n`)
  await writeFile(join(dir, 'modules.alias'), `${aliases.sort().join('\n')}\n`)
}

/** Copies the lists of built-in modules, so that modprobe knows what needs no file. */
export async function installBuiltinLists(kernel: Kernel, dir: string): Promise<void> {
  await mkdir(dir, { recursive: true })
  for (const name of ['modules.builtin', 'modules.order']) await cp(join(kernel.modulesDir, name), join(dir, name))
}

/** The NUL-terminated `key=value` strings of a module's .modinfo section with this key. */
export function moduleInfo(bytes: Uint8Array, key: string): string[] {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1')
  const values: string[] = []
  const marker = `\0${key}=`
  for (let at = text.indexOf(marker); at !== -1; at = text.indexOf(marker, at + 1)) {
    const end = text.indexOf('\0', at + 1)
    values.push(text.slice(at + marker.length, end))
  }
  return values
}

async function readModule(kernel: Kernel, name: string): Promise<KernelModule> {
  const file = kernel.modules.get(sameName(name))
  if (file === undefined) throw new ImageFault('module_missing', `kernel ${kernel.version} has no module ${name}`)
  const bytes = await decompressXz(file)
  const [depends = ''] = moduleInfo(bytes, 'depends')
  return {
    name,
    path: relative(kernel.modulesDir, file).replace(/\.xz$/, ''),
    bytes,
    depends: depends === '' ? [] : depends.split(','),
    aliases: moduleInfo(bytes, 'alias'),
  }
}

async function decompressXz(file: string): Promise<Uint8Array> {
  const child = Bun.spawn(['xz', '--decompress', '--stdout', file], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'ignore',
  })
  const [bytes, status] = await Promise.all([child.stdout.bytes(), child.exited])
  if (status !== 0) throw new ImageFault('tool_failed', `xz could not read ${file}`)
  return bytes
}

// The kernel takes - and _ in module names for the same.
function sameName(name: string): string {
  return name.replaceAll('-', '_')
}
