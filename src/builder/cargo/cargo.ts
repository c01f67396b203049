// A build with Cargo: fetches the lock's crates, checks them, builds offline. Effects: programs, files on scratch.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { createLineSplitter } from '../../linux/lines.ts'
import type { Candidate } from '../collect.ts'
import { type Bounds, runProgram } from '../confined/program.ts'
import type { Bind } from '../confined/root.plan.ts'
import { BuildFailure, refuseUnless } from '../failure.ts'
import { type Phase, places, uids } from '../phase.ts'
import type { Project } from '../project.ts'
import { copyFor, giveTo, makeDir, remove } from '../workspace.ts'
import {
  cargoBuildArgv,
  cargoCheckArgv,
  cargoEnvironment,
  cargoFetchArgv,
  cargoFetchEnvironment,
  isMirror,
  packageOf,
  readCargoMessage,
} from './cargo.plan.ts'
import type { CargoLock, LockedCrate } from './lock.codec.ts'

/** The fetched crates, mounted read-only in the build. */
export type CargoFetched = { readonly binds: readonly Bind[]; readonly mirror: string | null }

const messageLineBytesMax = 1024 * 1024
const fetchPids = 64

const projectPlace = ({ dir }: Project) => (dir === '' ? places.source : `${places.source}/${dir}`)

/** Asks cargo, offline, whether the source holds every crate of its lock. `why`: cargo's output if not. */
export async function cargoHasAll(
  phase: Phase,
  project: Project,
  sourceDir: string,
): Promise<{ has: boolean; why: string }> {
  const dirs = scratchDirs(phase, 'check', uids.build)
  const code = await runProgram(phase.site, {
    name: 'cargo-check',
    bounds: boundsOf(phase, phase.order.limits.fetchSeconds),
    signal: phase.job.signal,
    onStdout: () => {},
    onStderr: phase.job.output('fetch'),
    plan: {
      uid: uids.build,
      network: false,
      nestedNamespaces: false,
      cwd: projectPlace(project),
      argv: cargoCheckArgv(),
      binds: [...phase.tools.binds, { from: sourceDir, to: places.source, writable: false }, ...dirs.binds],
      etcDir: `${phase.workDir}/etc`,
      env: cargoEnvironment(phase.tools.path),
    },
  })
  await remove(dirs.root)
  return { has: code === 0, why: phase.job.tail() }
}

/** Failures: `source_unreachable`, `checksum_mismatch`, and those of runProgram. */
export async function cargoFetch(
  phase: Phase,
  project: Project,
  { lock, sourceDir, proxy, mirror }: { lock: CargoLock; sourceDir: string; proxy: string; mirror: string | null },
): Promise<CargoFetched> {
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
      argv: cargoFetchArgv(`${projectPlace(project)}/Cargo.toml`, mirror),
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
  refuseUnless(
    code === 0,
    /checksum/i.test(phase.job.tail()) ? 'checksum_mismatch' : 'source_unreachable',
    () =>
      `cargo fetch: exit code ${code}; vendor the packages, or ask the operator which hosts are allowed: ${phase.job.tail()}`,
  )
  const home = `${dirs.root}/cargo`
  await giveTo(0, home)
  await checkCrates(home, lock.crates)
  // Crates that cargo unpacked are unpacked again from the checked archives.
  await remove(`${home}/registry/src`)
  await remove(`${home}/git/checkouts`)
  const binds = ['registry/cache', 'registry/index', 'git/db']
    .filter(name => fs.lstatSync(`${home}/${name}`, { throwIfNoEntry: false })?.isDirectory() === true)
    .map(name => ({ from: `${home}/${name}`, to: `${places.cargo}/${name}`, writable: false }))
  fs.chmodSync(dirs.root, 0o711)
  fs.chmodSync(home, 0o711)
  return { binds, mirror }
}

/** Every present crate needs its checksum in the lock; cargo itself reports missing crates. */
async function checkCrates(home: string, crates: readonly LockedCrate[]): Promise<void> {
  const locked = new Map<string, Set<string>>()
  for (const { name, version, from } of crates) {
    if (from.kind !== 'registry') continue
    const file = `${name}-${version}.crate`
    locked.set(file, new Set([...(locked.get(file) ?? []), from.sha256]))
  }
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
    }
  }
}

export async function sha256Of(path: string): Promise<string> {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = fs.constants
  const file = await fs.promises.open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
  const hash = createHash('sha256')
  const chunk = new Uint8Array(1024 * 1024)
  try {
    refuseUnless((await file.stat()).isFile(), 'internal', () => `${path}: not a regular file`)
    for (;;) {
      const { bytesRead } = await file.read(chunk, 0, chunk.length, null)
      if (bytesRead === 0) return hash.digest('hex')
      hash.update(chunk.subarray(0, bytesRead))
    }
  } finally {
    await file.close()
  }
}

type CargoBuild = {
  readonly project: Project
  readonly sourceDir: string
  readonly lock: CargoLock
  readonly fetched: CargoFetched | null
  /** 1; 2 for the second build, made for comparison. */
  readonly round: number
}

/** The artifacts that cargo reports. Failures: `build_failed`, and those of runProgram. */
export async function cargoBuild(phase: Phase, build: CargoBuild): Promise<Candidate[]> {
  const { project, fetched, round, lock } = build
  const { job } = phase
  const dirs = scratchDirs(phase, `build-${round}`, uids.build)
  const source = await copyFor(uids.build, build.sourceDir, `${dirs.root}/source`)
  const target = makeDir(`${dirs.root}/target`, uids.build)
  const done = new Set<string>()
  const files = new Set<string>()
  const startedMs = phase.site.clock.monotonicMs()
  const onLine = (line: Uint8Array) => {
    const message = readCargoMessage(Buffer.from(line).toString('utf8'))
    if (message.kind !== 'artifact') return
    for (const file of message.files) files.add(file)
    const name = packageOf(message.packageId)
    if (done.has(name) || done.size >= lock.packageCount) return
    done.add(name)
    const seconds = Math.round((phase.site.clock.monotonicMs() - startedMs) / 1000)
    // An upper bound: the lock also names packages of other platforms and of tests.
    job.say('build', `crate ${done.size} of at most ${lock.packageCount}: ${name}, ${seconds} s`)
  }
  const messages = createLineSplitter({ lineBytesMax: messageLineBytesMax, onLine, onOverlong: () => {} })
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
      argv: cargoBuildArgv(fetched?.mirror ?? null),
      binds: [
        ...phase.tools.binds,
        { from: source, to: places.source, writable: true },
        { from: target, to: places.target, writable: true },
        ...dirs.binds,
        ...(fetched?.binds ?? []),
      ],
      etcDir: `${phase.workDir}/etc`,
      env: cargoEnvironment(phase.tools.path),
    },
  })
  refuseUnless(code === 0, 'build_failed', () => `cargo build: exit code ${code}: ${job.tail()}`)
  return [...files].map(file => candidateOf(file, target))
}

/** Maps a path from the build's view to ours. */
function candidateOf(file: string, target: string): Candidate {
  const name = file.slice(file.lastIndexOf('/') + 1)
  if (!file.startsWith(`${places.target}/`))
    throw new BuildFailure(
      'build_failed',
      `artifact ${JSON.stringify(name.slice(0, 200))}: not below the build's output`,
    )
  return { name, root: target, relative: file.slice(places.target.length + 1) }
}

function boundsOf({ order: { limits } }: Phase, seconds: number): Bounds {
  return {
    timeoutMs: seconds * 1000,
    memoryBytes: limits.memoryBytes,
    pids: limits.pids,
    diskBytes: limits.diskBytes,
    outputBytes: limits.logBytes,
  }
}

/** Home, CARGO_HOME and /tmp of one run. */
function scratchDirs(phase: Phase, name: string, uid: number): { root: string; binds: readonly Bind[] } {
  const root = makeDir(`${phase.workDir}/${name}`, uid)
  const bind = (dir: string, to: string): Bind => ({ from: makeDir(`${root}/${dir}`, uid), to, writable: true })
  return { root, binds: [bind('home', places.home), bind('cargo', places.cargo), bind('tmp', places.tmp)] }
}
