// Nix as a toolchain: a separate store, and derivations in Nix's sandbox within the builder's. Effects: programs, files
// on scratch.

import * as fs from 'node:fs'
import type { LockedPackage } from '../../attest/provenance/record.ts'
import { nixOptionsOf } from '../../contract/http/option-words.ts'
import { showName } from '../../linux/source/tree.plan.ts'
import { type Candidate, filesBelow } from '../collect.ts'
import { runProgram } from '../confined/program.ts'
import type { Bind } from '../confined/root.plan.ts'
import { BuildFailure, exitText, failureOf, refuseUnless } from '../failure.ts'
import { type Phase, places, uids } from '../phase.ts'
import { readLock } from '../project.ts'
import type { Source } from '../source/extract-source.ts'
import { toolOf } from '../tool.ts'
import type { LockFile, Project, ProjectRequest, Toolchain, ToolchainRun } from '../toolchain.ts'
import { copyFor, giveTo, makeDir } from '../workspace.ts'
import { isLockMismatch, nixFailure } from './causes.plan.ts'
import { type FlakeInput, readFlakeLock } from './flake-lock.codec.ts'
import {
  type Built,
  type Derivations,
  flakeReference,
  type NixFetch,
  nixBuildArgv,
  nixDeleteArgv,
  nixEnvironment,
  nixFetchArgv,
  nixFetchEnvironment,
  nixHashArgv,
  nixPlace,
  nixShowArgv,
  nixVerifyArgv,
  readBuilt,
  readDerivations,
  realisedFetches,
} from './nix.plan.ts'
import type { NixPath } from './realise.plan.ts'
import { type Answer, type Realising, realise, storedPaths } from './realise.ts'

const answerBytesMax = 64 * 1024 * 1024

const files = { manifest: 'flake.nix', lock: 'flake.lock', makeLock: 'nix flake lock' } as const

export const nixToolchain: Toolchain = { ...files, problemOf, describe: () => null, start: startNix }

/** Returns why a flake cannot be built; null if it can. A flake needs its inputs, and caches for their dependencies. */
function problemOf(lock: string, { fetch, options }: ProjectRequest): string | null {
  let count: number
  try {
    count = readFlakeLock(lock).length
  } catch (error) {
    return failureOf(error).message
  }
  if (count === 0) return null
  const inputs = `flake.lock: ${count} inputs from elsewhere`
  if (fetch === null) return `${inputs}, and this service fetches nothing`
  const caches = nixOptionsOf(options)?.caches ?? []
  return caches.length > 0 ? null : `${inputs}, and the request names no nix_caches for what they need`
}

/** Prepares a build. Failures `source_invalid` and `checksum_mismatch` of the lock. */
async function startNix(phase: Phase, project: Project, { root }: Source): Promise<ToolchainRun> {
  const lock = await readLock(root, files, project.dir === '' ? 'flake.lock' : `${project.dir}/flake.lock`)
  const nix = new Nix(phase, project, { sourceDir: root, lock })
  return {
    lock,
    fetch: openNetwork => nix.fetch(openNetwork),
    build: round => nix.build(round),
    facts: async () => ({
      tools: { toolchain: 'nix', programs: { nix: await toolOf(phase, 'nix') } },
      command: nixBuildArgv(nix.reference),
      environment: nixEnvironment(phase.tools.path),
      packages: nix.packages,
      members: [],
      pinned: null,
      rust: null,
      evaluation: { derivationCount: nix.derivationCount, fetchCount: nix.fixed.length },
    }),
  }
}

type Run = {
  readonly name: string
  readonly uid: number
  readonly network: boolean
  readonly argv: readonly string[]
  readonly binds: readonly Bind[]
  readonly env: Readonly<Record<string, string>>
  readonly step: 'fetch' | 'build'
  /** Whether the output is parsed instead of logged, because it is long. */
  readonly answers?: boolean
}

class Nix {
  readonly #phase: Phase
  readonly #sourceDir: string
  readonly flake: string
  /** Flake and output in the form of `nix build`. */
  readonly reference: string
  readonly inputs: readonly FlakeInput[]
  /** Number of derivations in the last build. */
  derivationCount = 0
  fixed: readonly NixFetch[] = []
  #paths: readonly NixPath[] = []
  /** Store with everything that was fetched. */
  #store: string | null = null

  constructor(phase: Phase, project: Project, { sourceDir, lock }: { sourceDir: string; lock: LockFile }) {
    this.#phase = phase
    this.#sourceDir = sourceDir
    this.flake = project.dir === '' ? places.source : `${places.source}/${project.dir}`
    // The name becomes part of a flake reference, in which other characters have a special meaning.
    refuseUnless(
      /^[A-Za-z0-9._/-]+$/.test(this.flake),
      'source_invalid',
      () => 'project_dir: invalid directory for a flake; use letters, digits and . _ -',
    )
    this.reference = flakeReference(this.flake, nixOptionsOf(phase.order.options)?.output ?? null)
    this.inputs = readFlakeLock(lock.text)
  }

  /** Returns all external inputs. A path that is a fixed output is listed once, by the hash in the source. */
  get packages(): LockedPackage[] {
    const fixed = new Set(this.fixed.map(({ outPath }) => outPath))
    const paths = this.#paths.filter(({ storePath }) => !fixed.has(`${nixPlace}/store/${storePath}`))
    return [...this.inputs, ...paths, ...this.fixed.map(({ urls: _, outPath: __, ...fetch }) => fetch)]
  }

  async fetch(openNetwork: () => Promise<string>): Promise<void> {
    const { job, order, tools, workDir } = this.#phase
    const count = this.inputs.length
    if (order.fetch === null) {
      if (count === 0) return job.say('fetch', 'flake.lock names no external input: nothing to fetch')
      throw new BuildFailure(
        'source_unreachable',
        `flake.lock: ${count} inputs from elsewhere, and this service fetches nothing; make them part of the source`,
      )
    }
    const root = makeDir(`${workDir}/fetch`, uids.fetch)
    const binds = [
      ...this.#dirs(root, uids.fetch),
      { from: this.#sourceDir, to: places.source, writable: false },
      this.#ca(),
    ]
    let proxy: string | null = null
    const run = async ({ name, network, argv }: { name: string; network: boolean; argv: readonly string[] }) => {
      if (network) proxy ??= await openNetwork()
      const env = network && proxy !== null ? nixFetchEnvironment(tools.path, proxy) : nixEnvironment(tools.path)
      const answers = !network
      return await this.#run({ name, uid: uids.fetch, network, argv, step: 'fetch', binds, env, answers })
    }
    job.say('fetch', `${count} flake inputs`)
    if (count > 0) await this.#fetchInputs(run)
    this.#paths = await realise({
      run,
      reference: this.reference,
      caches: nixOptionsOf(order.options)?.caches ?? [],
      say: line => job.say('fetch', line),
      tail: () => job.tail(),
    })
    this.#store = `${root}/nix`
    await giveTo(0, this.#store)
  }

  async #fetchInputs(run: Realising['run']): Promise<void> {
    const { job } = this.#phase
    const { code } = await run({ name: 'nix-fetch', network: true, argv: nixFetchArgv(this.flake) })
    if (code !== 0 && isLockMismatch(job.tail())) throw nixFailure('nix flake archive', job.tail())
    refuseUnless(
      code === 0 || !/hash mismatch|mismatch in field 'narHash'/i.test(job.tail()),
      'checksum_mismatch',
      () =>
        `an input does not match its narHash in flake.lock; compare it with the input's repository first; if the change is intended, run \`nix flake update NAME\`, and send flake.lock with the source: ${job.tail()}`,
    )
    refuseUnless(
      code === 0,
      'source_unreachable',
      () => `nix flake archive: exit code ${code}; ask the operator which hosts are allowed: ${job.tail()}`,
    )
    const stored = await storedPaths(run)
    const missing = this.inputs.find(({ narSha256 }) => !stored.some(info => info.narSha256 === narSha256))
    refuseUnless(
      missing === undefined,
      'source_invalid',
      () => `flake.lock: Nix does not take the input ${showName(missing?.name ?? '')}; run \`nix flake lock\``,
    )
    // The source itself, which the evaluation copies again, and archives of inputs: no narHash covers their bytes, so
    // no build may read them.
    const named = new Set(this.inputs.map(({ narSha256 }) => narSha256))
    const others = stored.filter(({ narSha256 }) => !named.has(narSha256)).map(({ path }) => path)
    if (others.length === 0) return
    const deleted = await run({ name: 'nix-delete', network: false, argv: nixDeleteArgv(others) })
    refuseUnless(deleted.code === 0, 'internal', () => `nix-store --delete: exit code ${deleted.code}: ${job.tail()}`)
  }

  async build(round: number): Promise<Candidate[]> {
    const { job, workDir, tools } = this.#phase
    const root = makeDir(`${workDir}/build-${round}`, uids.build)
    const source = await copyFor(uids.build, this.#sourceDir, `${root}/source`)
    const binds = [...this.#dirs(root, uids.build), { from: source, to: places.source, writable: true }]
    if (this.#store !== null) {
      fs.rmdirSync(`${root}/nix`)
      await copyFor(uids.build, this.#store, `${root}/nix`)
    }
    const common = { uid: uids.build, network: false, binds, env: nixEnvironment(tools.path), step: 'build' } as const
    const argv = nixBuildArgv(this.reference)
    const { code, stdout } = await this.#run({ ...common, name: `nix-build-${round}`, argv })
    if (code !== 0) throw nixFailure(`nix build: ${exitText(code, this.#phase.order.limits)}`, job.tail())
    const built = readBuilt(stdout)
    refuseUnless(built !== null, 'build_failed', () => 'nix build: no list of outputs')
    // The same user owns the store, so a derivation could have changed its inputs, and the list that is read next.
    const verified = await this.#run({ ...common, name: 'nix-verify', argv: nixVerifyArgv() })
    refuseUnless(
      verified.code === 0,
      'build_failed',
      () => `nix: a derivation changed paths of the store that are not its outputs: ${job.tail()}`,
    )
    const run: Realising['run'] = program => this.#run({ ...common, ...program, network: false, answers: true })
    const show = async (drvPaths: readonly string[], recursive: boolean): Promise<Derivations> => {
      const runAs = (name: 'new' | 'old') =>
        run({ name: 'nix-show', network: false, argv: nixShowArgv(drvPaths, { name, recursive }) })
      const first = await runAs('new')
      const shown = first.code === 0 ? first : await runAs('old')
      const derivations = shown.code === 0 ? readDerivations(shown.stdout) : null
      refuseUnless(derivations !== null, 'internal', () => 'nix show-derivation: no list of derivations')
      return derivations
    }
    const derivations = await show(
      built.map(({ drvPath }) => drvPath),
      true,
    )
    const storePaths = (await storedPaths(run)).map(({ path }) => path)
    const fetches = [...derivations.fetches]
    // A derivation that only the evaluation needed is not an input of the output.
    const others = storePaths.filter(path => path.endsWith('.drv') && !derivations.drvPaths.has(path))
    for (let at = 0; at < others.length; at += shownMax)
      fetches.push(...(await show(others.slice(at, at + shownMax), false)).fetches)
    this.derivationCount = derivations.drvPaths.size
    this.fixed = realisedFetches({ fetches }, new Set(storePaths))
    await checkFixed(this.fixed, `${root}/nix`, run)
    const { candidates, links } = candidatesOf(built, `${root}/nix`, this.#phase.order.limits.artifactCount)
    if (links.length > 0) {
      const named = links.slice(0, linksShownMax).map(showName).join(', ')
      job.say('build', `not among the artifacts, because they are links, ${links.length}: ${named}`)
    }
    refuseUnless(
      candidates.length > 0,
      'no_artifacts',
      () =>
        `the build produced no artifact: ${links.length === 0 ? 'the output is empty' : 'the output contains only links; copy their targets instead (cp -L)'}`,
    )
    return candidates
  }

  #dirs(root: string, uid: number): Bind[] {
    const bind = (dir: string, to: string): Bind => ({ from: makeDir(`${root}/${dir}`, uid), to, writable: true })
    return [bind('home', places.home), bind('tmp', places.tmp), bind('nix', nixPlace)]
  }

  #ca(): Bind {
    return { from: this.#phase.caBundle, to: places.ca, writable: false }
  }

  async #run({ name, uid, network, argv, binds, env, step, answers }: Run): Promise<Answer> {
    const { job, order, site, tools, workDir } = this.#phase
    const { limits } = order
    const answer: Uint8Array[] = []
    const errors: Uint8Array[] = []
    let answerBytes = 0
    const log = job.output(step)
    const code = await runProgram(site, {
      name,
      bounds: {
        timeoutMs: (network ? limits.fetchSeconds : limits.buildSeconds) * 1000,
        memoryBytes: limits.memoryBytes,
        pids: limits.pids,
        diskBytes: network ? limits.fetchBytes : limits.diskBytes,
        outputBytes: limits.logBytes,
        ...(answers ? { answerBytes: answerBytesMax } : {}),
      },
      signal: job.signal,
      onStdout: chunk => {
        answerBytes += chunk.length
        if (answerBytes <= answerBytesMax) answer.push(chunk.slice())
      },
      onStderr: chunk => {
        errors.push(chunk.slice())
        log(chunk)
      },
      plan: {
        uid,
        network,
        nestedNamespaces: true,
        cwd: places.home,
        argv,
        env,
        binds: [...tools.binds, ...binds],
        etcDir: `${workDir}/etc-${uid}`,
      },
    })
    const text = (chunks: readonly Uint8Array[]) => Buffer.concat(chunks).toString('utf8')
    return { code, stdout: text(answer), stderr: text(errors) }
  }
}

const linksShownMax = 8
/** Number of derivations that one run of Nix describes. Their paths are its arguments, whose length Linux limits. */
const shownMax = 5_000

/**
 * Compares each fixed output in the store with its hash, because Nix accepts any bytes from a cache with a valid
 * signature.
 */
async function checkFixed(fixed: readonly NixFetch[], nixDir: string, run: Realising['run']): Promise<void> {
  refuseOther(fixed.find(fetch => !isPlain(nixDir, fetch)))
  const kinds = Map.groupBy(fixed, ({ outputHashMode, hash }) => `${outputHashMode} ${hash.algorithm}`)
  for (const kind of kinds.values()) {
    for (let at = 0; at < kind.length; at += shownMax) {
      const some = kind.slice(at, at + shownMax)
      const argv = nixHashArgv(some)
      const { code, stdout } = await run({ name: 'nix-hash', network: false, argv })
      const hashes = stdout.trim().split('\n')
      refuseUnless(
        code === 0 && hashes.length === some.length,
        'internal',
        () => `nix-hash: no list of hashes, exit code ${code}`,
      )
      refuseOther(some.find(({ hash }, index) => hashes[index] !== hash.hex))
    }
  }
}

/**
 * Reports whether a flat output is a plain file. Nix would hash a link's target, and ignore whether it is executable.
 */
function isPlain(nixDir: string, { outputHashMode, outPath }: NixFetch): boolean {
  if (outPath === null) return false
  if (outputHashMode !== 'flat') return true
  const stat = fs.lstatSync(`${nixDir}/${outPath.slice(nixPlace.length + 1)}`)
  return stat.isFile() && (stat.mode & 0o111) === 0
}

function refuseOther(other: NixFetch | undefined): void {
  refuseUnless(
    other === undefined,
    'checksum_mismatch',
    () =>
      `nix: the fixed output ${showName(other?.name ?? '')} does not match its hash in the flake; ` +
      'correct the hash, or add a cache with the right content to nix_caches',
  )
}

/**
 * Returns regular files of the outputs, without following links, each named by its base name if that is unique,
 * otherwise by its path.
 */
function candidatesOf(
  built: readonly Built[],
  nixDir: string,
  countMax: number,
): { readonly candidates: Candidate[]; readonly links: readonly string[] } {
  const links: string[] = []
  const files: { readonly root: string; readonly relative: string }[] = []
  for (const output of new Set(built.flatMap(built => built.outputs))) {
    const path = `${nixDir}/${output.slice(nixPlace.length + 1)}`
    const stat = fs.lstatSync(path)
    if (stat.isDirectory()) {
      const found = filesBelow(path, countMax)
      files.push(...found.files.map(relative => ({ root: path, relative })))
      links.push(...found.links)
    } else if (stat.isFile()) {
      const at = path.lastIndexOf('/')
      files.push({ root: path.slice(0, at), relative: path.slice(at + 1) })
    } else links.push(output.slice(output.lastIndexOf('/') + 1))
  }
  // The name of an output that is a file begins with its digest.
  const nameOf = (relative: string) => relative.slice(relative.lastIndexOf('/') + 1).replace(/^[0-9a-z]{32}-/, '')
  const counts = Map.groupBy(files, file => nameOf(file.relative).toLowerCase())
  const candidates = files.map(file => {
    const name = nameOf(file.relative)
    return { ...file, name: counts.get(name.toLowerCase())?.length === 1 ? name : file.relative }
  })
  return { candidates, links }
}
