// A build with Cargo: fetches the lock's crates, checks them, builds offline. Effects: programs, files on scratch.

import * as fs from 'node:fs'
import { cargoOptionsOf } from '../../contract/http/option-words.ts'
import { createLineSplitter } from '../../linux/lines.ts'
import type { Candidate } from '../collect.ts'
import { runProgram } from '../confined/program.ts'
import type { Bind } from '../confined/root.plan.ts'
import { sha256Of } from '../digest.ts'
import { BuildFailure, exitText, refuseUnless } from '../failure.ts'
import { boundsOf, type Phase, places, uids } from '../phase.ts'
import { rustInfoFile, rustInfoName } from '../recorded-tools.ts'
import { projectPlace } from '../sandbox.ts'
import type { Project } from '../toolchain.ts'
import { copyFor, giveTo, makeDir, openToAll, remove } from '../workspace.ts'
import {
  cargoBuildArgv,
  cargoBuildEnvironment,
  cargoFetchArgv,
  cargoFetchEnvironment,
  cargoResolveConfig,
  isMirror,
  packageOf,
  readCargoMessage,
} from './cargo.plan.ts'
import { buildFailure, fetchFailure } from './causes.plan.ts'
import { type CargoLock, type LockedCrate, packagesMax } from './lock.codec.ts'
import { hasCargoSettings } from './settings.ts'

/** Fetched crates. */
export type CargoFetched = {
  /** CARGO_HOME of the fetch. */
  readonly home: string
  /** Archives and repositories from which cargo unpacks them again. */
  readonly binds: readonly Bind[]
  readonly mirror: string | null
  /** SHA-256 of each crate file by `REGISTRY/NAME-VERSION`, the directory into which cargo unpacks it. */
  readonly crates: ReadonlyMap<string, string>
}

const messageLineBytesMax = 1024 * 1024
const fetchPids = 64

/** Fetches the crates. Failures: `source_unreachable`, `checksum_mismatch`, and those of runProgram. */
export async function cargoFetch(
  phase: Phase,
  project: Project,
  order: {
    readonly lock: CargoLock
    readonly lockOption: readonly string[]
    readonly sourceDir: string
    readonly proxy: string
    readonly mirror: string | null
  },
): Promise<CargoFetched> {
  const { lock, sourceDir, proxy, mirror } = order
  refuseUnless(mirror === null || isMirror(mirror), 'internal', () => 'fetch.cratesMirror: not sparse+https://…/')
  const dirs = scratchDirs(phase, 'fetch', uids.fetch)
  const code = await runProgram(phase.site, {
    name: 'cargo-fetch',
    bounds: {
      ...boundsOf(phase, phase.order.limits.fetchSeconds),
      diskBytes: phase.order.limits.fetchBytes,
      pids: fetchPids,
    },
    signal: phase.job.signal,
    onStdout: phase.job.output('fetch'),
    onStderr: phase.job.output('fetch'),
    plan: {
      uid: uids.fetch,
      network: true,
      nestedNamespaces: false,
      cwd: places.home,
      argv: cargoFetchArgv(`${projectPlace(project)}/Cargo.toml`, {
        mirror,
        lock: order.lockOption,
        options: cargoOptionsOf(phase.order.options),
      }),
      binds: [
        ...phase.tools.binds,
        { from: sourceDir, to: places.source, writable: false },
        { from: phase.caBundle, to: places.ca, writable: false },
        ...dirs.binds,
      ],
      etcDir: `${phase.workDir}/etc-fetch`,
      env: cargoFetchEnvironment(phase.tools.path, proxy),
    },
  })
  if (code !== 0) throw fetchFailure(code, phase.job.tail())
  const home = `${dirs.root}/cargo`
  await giveTo(0, home)
  const crates = await checkCrates(home, lock.crates)
  // Crates that cargo unpacked are unpacked again from the verified archives.
  await remove(`${home}/registry/src`)
  await remove(`${home}/git/checkouts`)
  const binds = ['registry/cache', 'registry/index', 'git/db']
    .filter(name => fs.lstatSync(`${home}/${name}`, { throwIfNoEntry: false })?.isDirectory() === true)
    .map(name => ({ from: `${home}/${name}`, to: `${places.cargo}/${name}`, writable: false }))
  await openToAll(home)
  fs.chmodSync(dirs.root, 0o711)
  return { home, binds, mirror, crates }
}

/** Requires a checksum in the lock for every fetched crate; cargo itself reports missing crates. */
async function checkCrates(home: string, crates: readonly LockedCrate[]): Promise<ReadonlyMap<string, string>> {
  const locked = new Map<string, Set<string>>()
  for (const { name, version, pin } of crates) {
    if (pin.kind !== 'registry') continue
    const file = `${name}-${version}.crate`
    locked.set(file, new Set([...(locked.get(file) ?? []), pin.sha256]))
  }
  const found = new Map<string, string>()
  const cache = `${home}/registry/cache`
  const registries = fs.existsSync(cache) ? fs.readdirSync(cache) : []
  for (const registry of registries) {
    for (const file of fs.readdirSync(`${cache}/${registry}`)) {
      const sums = locked.get(file)
      const sum = sums === undefined ? null : await sha256Of(`${cache}/${registry}/${file}`)
      refuseUnless(
        sum !== null && sums?.has(sum) === true,
        'checksum_mismatch',
        () => `fetched ${file}: ${sum === null ? 'not in Cargo.lock' : `SHA-256 ${sum} is not the one in Cargo.lock`}`,
      )
      found.set(`${registry}/${file.replace(/\.crate$/, '')}`, sum)
    }
  }
  return found
}

type CargoBuild = {
  readonly project: Project
  readonly sourceDir: string
  /** Upper limit of the packages to compile, for progress. */
  readonly packageCount: number
  readonly lockOption: readonly string[]
  readonly mirror: string | null
  /** Fetched crates, read-only. */
  readonly binds: readonly Bind[]
  /** 1, or 2 for the second build, which is compared with the first. */
  readonly round: number
}

type CargoBuilt = {
  readonly artifacts: readonly Candidate[]
  /** Manifest path by id of each package that cargo reports as compiled. */
  readonly compiled: ReadonlyMap<string, string>
}

/** Builds the project. Failures: `build_failed`, and those of runProgram. */
export async function cargoBuild(phase: Phase, build: CargoBuild): Promise<CargoBuilt> {
  const { project, round, packageCount } = build
  const { job } = phase
  const options = cargoOptionsOf(phase.order.options)
  const dirs = scratchDirs(phase, `build-${round}`, uids.build)
  const source = await copyFor(uids.build, build.sourceDir, `${dirs.root}/source`)
  const target = targetDir(phase, dirs.root)
  const compiled = new Map<string, string>()
  const files = new Map<string, string>()
  const twice = new Set<string>()
  let lost: string | null = null
  const startedMs = phase.site.clock.monotonicMs()
  const onLine = (line: Uint8Array) => {
    const message = readCargoMessage(Buffer.from(line).toString('utf8'))
    if (message.kind !== 'artifact') return
    const maker = `${message.packageId}, ${message.target}`
    if (message.isFresh) lost ??= `cargo compiled ${maker.slice(0, 300)} before this build`
    for (const file of message.files) {
      if ((files.get(file) ?? maker) !== maker) twice.add(`${baseName(file)}: ${files.get(file)} and ${maker}`)
      files.set(file, maker)
    }
    const known = compiled.get(message.packageId)
    // One of the two paths is forged. Combined they match no path of the resolve.
    if (known !== undefined && known !== message.manifestPath)
      compiled.set(message.packageId, `${known} and ${message.manifestPath}`)
    if (known !== undefined || compiled.size > packagesMax) return
    compiled.set(message.packageId, message.manifestPath)
    if (compiled.size > packageCount) return
    const name = packageOf(message.packageId)
    const seconds = Math.round((phase.site.clock.monotonicMs() - startedMs) / 1000)
    // An upper limit: the lock also contains packages of other platforms and of tests.
    job.say('build', `crate ${compiled.size} of at most ${packageCount}: ${name}, ${seconds} s`)
  }
  const messages = createLineSplitter({
    lineBytesMax: messageLineBytesMax,
    onLine,
    onOverlong: () => {
      lost ??= `cargo printed a line of more than ${messageLineBytesMax} bytes, which may name a package`
    },
  })
  const code = await runProgram(phase.site, {
    name: `cargo-build-${round}`,
    bounds: boundsOf(phase, phase.order.limits.buildSeconds),
    signal: job.signal,
    onStdout: chunk => messages.push(chunk),
    onStderr: job.output('build'),
    plan: {
      uid: uids.build,
      network: false,
      nestedNamespaces: false,
      cwd: projectPlace(project),
      argv: cargoBuildArgv({ mirror: build.mirror, lock: build.lockOption, options }),
      binds: [
        ...phase.tools.binds,
        { from: source, to: places.source, writable: true },
        { from: target, to: places.target, writable: true },
        { from: writeResolveConfig(phase), to: places.resolveConfig, writable: false },
        ...hiddenCargo(phase),
        ...dirs.binds,
        ...build.binds,
      ],
      etcDir: `${phase.workDir}/etc`,
      env: cargoBuildEnvironment(phase.tools.path, { hasSettings: hasCargoSettings(build.sourceDir, project.dir) }),
    },
  })
  if (code !== 0) throw buildFailure(exitText(code, phase.order.limits), job.tail(), options)
  refuseUnless(lost === null, 'build_failed', () => `${lost}; the list of packages would be incomplete`)
  refuseUnless(
    twice.size === 0,
    'build_failed',
    () =>
      `two targets produce the artifact ${[...twice][0]?.slice(0, 500)}; rename one, or select a member with project_dir`,
  )
  refuseUnless(
    files.size > 0,
    'no_artifacts',
    () =>
      'the build produced no artifact: the project has no program, cdylib or staticlib; select a package that has one (package, --package), or add crate-type = ["cdylib"] to [lib]',
  )
  return { artifacts: [...files.keys()].map(file => candidateOf(file, target)), compiled }
}

/**
 * Makes cargo executable but unreadable for users, as in the image, or as a copy otherwise. The kernel protects memory
 * and files of such a process from other processes of its user (ptrace(2), PR_GET_DUMPABLE), so a build script cannot
 * change what cargo reports.
 */
function hiddenCargo({ workDir, tools }: Phase): Bind[] {
  const cargo = fs.realpathSync(tools.fileOf('cargo'))
  if ((fs.statSync(cargo).mode & readable) === 0) return []
  const dir = `${workDir}/programs`
  if (!fs.existsSync(dir)) {
    fs.mkdirSync(dir, { mode: 0o755 })
    fs.copyFileSync(cargo, `${dir}/cargo`)
    fs.chmodSync(`${dir}/cargo`, 0o711)
  }
  return [{ from: dir, to: places.programs, writable: false }]
}

const readable = 0o044

/**
 * Returns a target directory with the image's record of rustc's answers about itself. Cargo checks that the compiler
 * matches.
 */
export function targetDir({ tools }: Phase, root: string): string {
  const dir = makeDir(`${root}/target`, uids.build)
  const known = `${tools.records}/${rustInfoFile}`
  if (tools.records === null || !fs.existsSync(known)) return dir
  fs.copyFileSync(known, `${dir}/${rustInfoName}`)
  fs.chownSync(`${dir}/${rustInfoName}`, uids.build, uids.build)
  return dir
}

function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1)
}

/** Maps a path in the build's view to the builder's. */
function candidateOf(file: string, target: string): Candidate {
  const name = baseName(file)
  if (!file.startsWith(`${places.target}/`))
    throw new BuildFailure(
      'build_failed',
      `artifact ${JSON.stringify(name.slice(0, 200))}: not below the build's output`,
    )
  return { name, root: target, relative: file.slice(places.target.length + 1) }
}

/** Writes the settings that override the source's, and returns the path of their file. */
export function writeResolveConfig({ workDir, tools }: Phase): string {
  const path = `${workDir}/resolve.toml`
  fs.writeFileSync(path, cargoResolveConfig(tools.path), { mode: 0o644 })
  return path
}

/** Creates home, CARGO_HOME and /tmp of one run. */
export function scratchDirs(phase: Phase, name: string, uid: number): { root: string; binds: readonly Bind[] } {
  const root = makeDir(`${phase.workDir}/${name}`, uid)
  const bind = (dir: string, to: string): Bind => ({ from: makeDir(`${root}/${dir}`, uid), to, writable: true })
  return { root, binds: [bind('home', places.home), bind('cargo', places.cargo), bind('tmp', places.tmp)] }
}
