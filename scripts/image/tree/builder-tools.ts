// The builder image's record of its programs: versions, digests, and the answers of rustc that cargo asks for in each
// build. Effects: runs the programs in a sandbox without a network, writes into the tree.

import { chmod, mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isRecord } from '../../../src/base/json.ts'
import {
  cargoBuildArgv,
  cargoBuildEnvironment,
  cargoMetadataArgv,
  cargoResolveConfig,
  cargoResolveEnvironment,
  lockOption,
} from '../../../src/builder/cargo/cargo.plan.ts'
import { places, plainEnvironment } from '../../../src/builder/phase.ts'
import {
  recordsDir,
  rustInfoFile,
  rustInfoName,
  type ToolName,
  toolsFile,
  VERSION_ARGV,
  versionIn,
} from '../../../src/builder/recorded-tools.ts'
import { sha256File } from '../digest.ts'
import { ImageFault } from '../image-fault.ts'
import { runTool } from '../tool.ts'

const path = '/usr/bin'
const timeoutMs = 300_000

type Recording = {
  /** The image's root. */
  readonly tree: string
  /** Time of every file of the image, in seconds. */
  readonly sourceDateEpoch: number
}

/** Throws tool_failed. */
export async function recordBuilderTools({ tree, sourceDateEpoch }: Recording): Promise<void> {
  const target = join(tree, recordsDir)
  await mkdir(target, { recursive: true, mode: 0o755 })
  const versions: Partial<Record<ToolName, { version: string; sha256: string }>> = {}
  for (const name of Object.keys(VERSION_ARGV).sort() as ToolName[]) {
    const printed = await runTool([...sandbox(tree, plainEnvironment, []), ...VERSION_ARGV[name]], { timeoutMs })
    versions[name] = { version: versionIn(printed), sha256: await sha256File(await fileOf(tree, name)) }
  }
  await writeFile(join(target, toolsFile), `${JSON.stringify(versions, null, 2)}\n`, { mode: 0o644 })
  const info = await rustInfo({ tree, sourceDateEpoch }, lockOption(versions.cargo?.version ?? '', 'Cargo.lock'))
  await writeFile(join(target, rustInfoFile), info, { mode: 0o644 })
  // Users can run it and not read it, so the kernel keeps the memory of such a process from others of its user.
  await chmod(await fileOf(tree, 'cargo'), 0o711)
}

async function fileOf(tree: string, name: string): Promise<string> {
  const file = await realpath(join(tree, 'usr/bin', name))
  if (!file.startsWith(`${await realpath(tree)}/usr/`))
    throw new ImageFault('tool_failed', `${name}: leads out of the image`)
  return file
}

/**
 * Builds an empty crate as a build does, and returns the answers of rustc that cargo keeps for its next run. Cargo uses
 * them only for a compiler of the same path, size, time of change and time of creation. The image's file system has
 * no time of creation, and neither has ramfs, on which rustc lies here.
 */
async function rustInfo({ tree, sourceDateEpoch }: Recording, lock: string[]): Promise<string> {
  const work = await mkdtemp(join(tmpdir(), 'strongroom-rust-info-'))
  try {
    const dirs = ['source/src', 'target', 'ramfs']
    for (const dir of dirs) await mkdir(join(work, dir), { recursive: true })
    await writeFile(join(work, 'source/Cargo.toml'), '[package]\nname = "empty"\nversion = "0.1.0"\nedition = "2024"\n')
    await writeFile(join(work, 'source/Cargo.lock'), 'version = 4\n\n[[package]]\nname = "empty"\nversion = "0.1.0"\n')
    await writeFile(join(work, 'source/src/main.rs'), 'fn main() {}\n')
    await writeFile(join(work, 'resolve.toml'), cargoResolveConfig(path))
    const binds = [
      ...['--ro-bind', join(work, 'ramfs/rustc'), '/usr/bin/rustc'],
      ...['--ro-bind', join(work, 'source'), places.source],
      ...['--ro-bind', join(work, 'resolve.toml'), places.resolveConfig],
      ...['--bind', join(work, 'target'), places.target],
    ]
    const run = { mirror: null, lock, options: null }
    const plain = { hasSettings: false }
    for (const [env, argv] of [
      [cargoResolveEnvironment(path, plain), cargoMetadataArgv(run)],
      [cargoBuildEnvironment(path, plain), cargoBuildArgv(run)],
    ] as const) {
      const script =
        'mount -t ramfs ramfs "$1" && cp "$2" "$1/rustc" && chmod 755 "$1/rustc" && touch --date "@$3" "$1/rustc" && shift 3 && exec "$@"'
      await runTool(
        [
          ...(['unshare', '--mount', '--map-root-user', '--', 'sh', '-c', script, 'sh'] as const),
          ...[join(work, 'ramfs'), await fileOf(tree, 'rustc'), String(sourceDateEpoch)],
          ...sandbox(tree, env, binds),
          ...argv,
        ],
        { timeoutMs },
      )
    }
    return sortedInfo(await readFile(join(work, 'target', rustInfoName), 'utf8'))
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}

function sandbox(tree: string, env: Readonly<Record<string, string>>, binds: readonly string[]): [string, ...string[]] {
  return [
    ...(['bwrap', '--unshare-all', '--die-with-parent', '--cap-drop', 'ALL', '--clearenv'] as const),
    ...['--ro-bind', join(tree, 'usr'), '/usr'],
    ...['bin', 'lib', 'lib64'].flatMap(name => ['--symlink', `usr/${name}`, `/${name}`]),
    ...['--ro-bind', join(tree, 'etc/alternatives'), '/etc/alternatives'],
    ...['--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp', '--tmpfs', '/build', '--dir', places.home],
    ...binds,
    ...Object.entries({ ...env, PATH: env.PATH ?? path }).flatMap(([name, value]) => ['--setenv', name, value]),
    ...['--chdir', binds.length === 0 ? '/' : places.source, '--'],
  ]
}

/** The same bytes for the same answers. The fingerprint is larger than a number of JavaScript holds. */
function sortedInfo(text: string): string {
  const [, fingerprint] = /^\{"rustc_fingerprint":(\d+),/.exec(text) ?? []
  const info: unknown = JSON.parse(text)
  if (fingerprint === undefined || !isRecord(info) || !isRecord(info.outputs))
    throw new ImageFault('tool_failed', `cargo wrote no ${rustInfoName}`)
  const outputs = Object.entries(info.outputs).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{"rustc_fingerprint":${fingerprint},"outputs":${JSON.stringify(Object.fromEntries(outputs))},"successes":{}}\n`
}
