// The verifier's package, packed by npm and installed from its tarball into an empty project. Effects: files below
// `dist`, made where sources have changed.

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { buildVerifierPackage, packageName } from '../../../scripts/build/verifier-package.ts'
import { runCommand } from '../../../scripts/lib/command.ts'
import { type BuiltOnce, builtOnce, makeOnce } from '../../../scripts/rigs/built/once.ts'

const folder = join(resolve(import.meta.dir, '../../..'), 'dist/tested-package')
const built: BuiltOnce = { program: import.meta.path, path: join(folder, 'packed.json') }
const commandTimeoutMs = 600_000

export type BuiltPackage = {
  /** A project that has the package installed and nothing else; to be copied. */
  readonly project: string
  readonly tarball: Uint8Array
  /** Names of the files in the tarball, sorted. */
  readonly packed: readonly string[]
}

export async function builtPackage(): Promise<BuiltPackage> {
  await builtOnce(built)
  const { tarball, packed } = JSON.parse(readFileSync(built.path, 'utf8'))
  return { project: join(folder, 'project'), tarball: await Bun.file(tarball).bytes(), packed }
}

/** `npm pack`, which runs no script of the package's. */
export async function pack(from: string, into: string) {
  const output = await run(['npm', 'pack', '--json', '--ignore-scripts', '--pack-destination', into, from], into)
  const [found]: { filename: string; files: { path: string }[] }[] = JSON.parse(output.slice(output.indexOf('[')))
  if (found === undefined) throw new Error(`npm pack: ${output}`)
  const filename = readdirSync(into).find(name => name.endsWith('.tgz'))
  if (filename === undefined) throw new Error(`npm pack made no tarball of ${packageName}`)
  return { tarball: join(into, filename), packed: found.files.map(file => file.path).sort() }
}

async function make(): Promise<void> {
  const [source, project] = [join(folder, 'package'), join(folder, 'project')]
  for (const name of readdirSync(folder).filter(name => name.endsWith('.tgz'))) rmSync(join(folder, name))
  rmSync(project, { recursive: true, force: true })
  await buildVerifierPackage(source)
  const { packed, tarball } = await pack(source, folder)
  mkdirSync(project)
  writeFileSync(join(project, 'package.json'), JSON.stringify({ name: 'project', private: true, type: 'module' }))
  await run(['npm', 'install', '--offline', '--no-audit', '--no-fund', '--ignore-scripts', tarball], project)
  writeFileSync(built.path, JSON.stringify({ tarball, packed }))
}

async function run(argv: readonly string[], cwd: string): Promise<string> {
  const { exitCode, output } = await runCommand(argv, { timeoutMs: commandTimeoutMs, cwd })
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${output}`)
  return output
}

if (import.meta.main) await makeOnce(built, make)
