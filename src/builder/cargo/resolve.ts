// Cargo's view of a source: its workspace and the packages of its lock. Effects: cargo, confined and without a network;
// files on scratch.
//
// Here cargo reads the source's settings, which can name programs. None of them runs: the plan sets the compiler
// without wrappers, and its settings override the source's. The source is read-only.

import * as fs from 'node:fs'
import { parse } from 'smol-toml'
import { isRecord } from '../../base/json.ts'
import { cargoOptionsOf } from '../../contract/http/option-words.ts'
import { runProgram } from '../confined/program.ts'
import type { Bind } from '../confined/root.plan.ts'
import { refuseUnless } from '../failure.ts'
import { boundsOf, type Phase, places, uids } from '../phase.ts'
import { directoryIn, readBounded } from '../project.ts'
import { projectPlace } from '../sandbox.ts'
import type { Source } from '../source/extract-source.ts'
import type { Project } from '../toolchain.ts'
import { giveTo, openToAll, remove } from '../workspace.ts'
import { cargoMetadataArgv, cargoResolveEnvironment, cargoRootArgv, readsLockfilePath } from './cargo.plan.ts'
import { type CargoFetched, scratchDirs, targetDir, writeResolveConfig } from './cargo.ts'
import { resolveFailure } from './causes.plan.ts'
import { type Resolve, readMetadata } from './metadata.codec.ts'
import { hasCargoSettings } from './settings.ts'

const answerBytesMax = 64 * 1024 * 1024

/** Returns the path of the lock that cargo reads, relative to the source. Failure `source_invalid`. */
export async function lockPathOf(
  phase: Phase,
  project: Project,
  source: Pick<Source, 'root' | 'missingSubmodules'> & { readonly cargoVersion: string },
): Promise<string> {
  const { root: sourceDir, cargoVersion } = source
  const { code, stdout, drop } = await ask(phase, project, {
    name: 'cargo-root',
    argv: cargoRootArgv(),
    sourceDir,
    binds: [],
  })
  await drop()
  if (code !== 0) throw resolveFailure(phase.job.tail(), source.missingSubmodules)
  const root = workspaceIn(sourceDir, stdout.trim().replace(/\/Cargo\.toml$/, ''))
  const chosen = readsLockfilePath(cargoVersion) ? await chosenLock(sourceDir, project.dir) : null
  return chosen ?? (root === '' ? 'Cargo.lock' : `${root}/Cargo.lock`)
}

type ResolveResult =
  | {
      readonly ok: true
      readonly resolve: Resolve
      /** The fetched crates with what cargo unpacked from them, unmodifiable for builds. */
      readonly binds: readonly Bind[]
    }
  /** `why`: the end of cargo's output. */
  | { readonly ok: false; readonly why: string }

/** Resolves the packages. Failure `build_failed` if cargo's output is invalid. */
export async function resolvePackages(
  phase: Phase,
  project: Project,
  order: {
    readonly sourceDir: string
    readonly lockOption: readonly string[]
    readonly fetched: CargoFetched | null
  },
): Promise<ResolveResult> {
  const { sourceDir, fetched, lockOption } = order
  const { code, stdout, home, drop } = await ask(phase, project, {
    name: fetched === null ? 'cargo-resolve' : 'cargo-resolve-fetched',
    argv: cargoMetadataArgv({
      mirror: fetched?.mirror ?? null,
      lock: lockOption,
      options: cargoOptionsOf(phase.order.options),
    }),
    sourceDir,
    binds: fetched?.binds ?? [],
  })
  const why = phase.job.tail()
  if (code !== 0) {
    await drop()
    return { ok: false, why }
  }
  const resolve = readMetadata(stdout)
  refuseUnless(resolve !== null, 'build_failed', () => 'cargo metadata: unexpected output')
  workspaceIn(sourceDir, resolve.workspaceRoot)
  if (fetched === null) {
    await drop()
    return { ok: true, resolve, binds: [] }
  }
  await giveTo(0, home)
  await openToAll(home)
  fs.chmodSync(home.slice(0, home.lastIndexOf('/')), 0o711)
  const binds = [
    ...unpackedBinds(fetched.home, home, ['registry', 'src']),
    ...unpackedBinds(fetched.home, home, ['git', 'checkouts']),
  ]
  return { ok: true, resolve, binds }
}

/**
 * Mounts the whole directory of the fetch, including what cargo unpacked. Mounting only the latter would not suffice:
 * its parent, in a writable directory, could be renamed.
 */
function unpackedBinds(fetchHome: string, home: string, [whole, unpacked]: readonly [string, string]): Bind[] {
  const isDirectory = (path: string) => fs.lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true
  if (!isDirectory(`${fetchHome}/${whole}`)) return []
  const bind = (from: string, name: string): Bind => ({ from, to: `${places.cargo}/${name}`, writable: false })
  const outer = bind(`${fetchHome}/${whole}`, whole)
  const inner = `${whole}/${unpacked}`
  if (!isDirectory(`${home}/${inner}`)) return [outer]
  fs.mkdirSync(`${fetchHome}/${inner}`, { recursive: true, mode: 0o755 })
  return [outer, bind(`${home}/${inner}`, inner)]
}

type Question = {
  readonly name: string
  readonly argv: readonly string[]
  readonly sourceDir: string
  readonly binds: readonly Bind[]
}
type Answer = {
  readonly code: number
  readonly stdout: string
  /** CARGO_HOME of the run. */
  readonly home: string
  /** Removes what the run wrote. */
  readonly drop: () => Promise<void>
}

async function ask(phase: Phase, project: Project, { name, argv, sourceDir, binds }: Question): Promise<Answer> {
  const dirs = scratchDirs(phase, name, uids.build)
  const output: Uint8Array[] = []
  const code = await runProgram(phase.site, {
    name,
    bounds: { ...boundsOf(phase, phase.order.limits.fetchSeconds), answerBytes: answerBytesMax },
    signal: phase.job.signal,
    onStdout: chunk => output.push(chunk.slice()),
    onStderr: phase.job.output('fetch'),
    plan: {
      uid: uids.build,
      network: false,
      nestedNamespaces: false,
      cwd: projectPlace(project),
      argv,
      binds: [
        ...phase.tools.binds,
        { from: sourceDir, to: places.source, writable: false },
        { from: targetDir(phase, dirs.root), to: places.target, writable: true },
        { from: writeResolveConfig(phase), to: places.resolveConfig, writable: false },
        ...dirs.binds,
        ...binds,
      ],
      etcDir: `${phase.workDir}/etc`,
      env: cargoResolveEnvironment(phase.tools.path, { hasSettings: hasCargoSettings(sourceDir, project.dir) }),
    },
  })
  return {
    code,
    stdout: Buffer.concat(output).toString('utf8'),
    home: `${dirs.root}/cargo`,
    drop: () => remove(dirs.root),
  }
}

/** Returns the workspace's directory relative to the source. `place`: cargo's path of it. Failure `source_invalid`. */
function workspaceIn(sourceDir: string, place: string): string {
  const isBelow = `${place}/`.startsWith(`${places.source}/`)
  const root = isBelow ? directoryIn(sourceDir, place.slice(places.source.length + 1)) : null
  refuseUnless(
    root !== null,
    'source_invalid',
    () => `Cargo.toml: its workspace, ${JSON.stringify(place.slice(0, 200))}, is not in the source`,
  )
  return root
}

/** Returns `resolver.lockfile-path` of the nearest settings, relative to the source. Null if none have it. */
async function chosenLock(sourceDir: string, dir: string): Promise<string | null> {
  const components = dir === '' ? [] : dir.split('/')
  for (let depth = components.length; depth >= 0; depth -= 1) {
    const at = [sourceDir, ...components.slice(0, depth)].join('/')
    for (const name of ['.cargo/config', '.cargo/config.toml']) {
      if (fs.lstatSync(`${at}/${name}`, { throwIfNoEntry: false })?.isFile() !== true) continue
      const setting = lockfileSetting(await readBounded(`${at}/${name}`, name))
      if (setting === null) continue
      const parts = setting.split('/')
      const parent = directoryIn(sourceDir, [...components.slice(0, depth), ...parts.slice(0, -1)].join('/'))
      refuseUnless(
        parent !== null && parts.at(-1) === 'Cargo.lock',
        'source_invalid',
        () => `${name}: resolver.lockfile-path: must be the path of a Cargo.lock in the source`,
      )
      return parent === '' ? 'Cargo.lock' : `${parent}/Cargo.lock`
    }
  }
  return null
}

/** Returns the setting; null for invalid settings, which cargo itself reports. */
function lockfileSetting(text: string): string | null {
  try {
    const { resolver } = parse(text)
    const path = isRecord(resolver) ? resolver['lockfile-path'] : null
    return typeof path === 'string' ? path : null
  } catch {
    return null
  }
}
