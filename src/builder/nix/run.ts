// Nix as a toolchain: its own store, derivations in Nix's sandbox within ours. Effects: programs, files on scratch.

import * as fs from 'node:fs'
import type { Candidate } from '../collect.ts'
import { runProgram } from '../confined/program.ts'
import type { Bind } from '../confined/root.plan.ts'
import { BuildFailure, refuseUnless } from '../failure.ts'
import { type Phase, places, uids } from '../phase.ts'
import type { Project } from '../project.ts'
import { toolOf } from '../tool.ts'
import type { ToolchainRun } from '../toolchain.ts'
import { copyFor, giveTo, makeDir } from '../workspace.ts'
import { type FlakeInput, readFlakeLock } from './flake-lock.codec.ts'
import {
  type Built,
  type Derivations,
  nixBuildArgv,
  nixEnvironment,
  nixFetchArgv,
  nixFetchEnvironment,
  nixPlace,
  nixShowArgv,
  readBuilt,
  readDerivations,
} from './nix.plan.ts'

const answerBytesMax = 64 * 1024 * 1024

/** Failures: `source_invalid` and `checksum_mismatch` of the lock. */
export function nixRun(phase: Phase, project: Project, sourceDir: string): ToolchainRun {
  const nix = new Nix(phase, project, sourceDir)
  return {
    fetch: openNetwork => nix.fetch(openNetwork),
    build: round => nix.build(round),
    facts: async () => ({
      tools: { toolchain: 'nix', nix: await toolOf(phase, 'nix') },
      command: nixBuildArgv(nix.flake),
      environment: nixEnvironment(phase.tools.path),
      packages: [...nix.inputs, ...nix.derivations.fetches],
      evaluation: { derivationCount: nix.derivations.count, fetchCount: nix.derivations.fetches.length },
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
  /** Its standard output is long and not logged. */
  readonly answers?: true
}

class Nix {
  readonly #phase: Phase
  readonly #sourceDir: string
  readonly flake: string
  readonly inputs: readonly FlakeInput[]
  /** The last build's. */
  derivations: Derivations = { count: 0, fetches: [] }
  /** Holds the fetched inputs. */
  #store: string | null = null

  constructor(phase: Phase, project: Project, sourceDir: string) {
    this.#phase = phase
    this.#sourceDir = sourceDir
    this.flake = project.dir === '' ? places.source : `${places.source}/${project.dir}`
    // It becomes part of a flake reference, in which other characters have a meaning.
    refuseUnless(
      /^[A-Za-z0-9._/-]+$/.test(this.flake),
      'source_invalid',
      () => 'project_dir: a flake may not stand there; use letters, digits and . _ -',
    )
    this.inputs = readFlakeLock(project.lock.text)
  }

  async fetch(openNetwork: () => Promise<string>): Promise<void> {
    const { job, order, tools, workDir } = this.#phase
    const count = this.inputs.length
    if (count === 0) return job.say('fetch', 'flake.lock names no input from elsewhere: nothing to fetch')
    if (order.fetch === null) {
      throw new BuildFailure(
        'source_unreachable',
        `flake.lock: ${count} inputs from elsewhere, and this service fetches nothing; make them part of the source`,
      )
    }
    job.say('fetch', `${count} flake inputs`)
    const proxy = await openNetwork()
    const root = makeDir(`${workDir}/fetch`, uids.fetch)
    const { code } = await this.#run({
      name: 'nix-fetch',
      uid: uids.fetch,
      network: true,
      argv: nixFetchArgv(this.flake),
      step: 'fetch',
      binds: [
        ...this.#dirs(root, uids.fetch),
        { from: this.#sourceDir, to: places.source, writable: false },
        this.#ca(),
      ],
      env: nixFetchEnvironment(tools.path, proxy),
    })
    refuseUnless(
      code === 0,
      /hash mismatch|mismatch in field 'narHash'/i.test(job.tail()) ? 'checksum_mismatch' : 'source_unreachable',
      () => `nix flake archive: exit code ${code}; ask the operator which hosts are allowed: ${job.tail()}`,
    )
    this.#store = `${root}/nix`
    await giveTo(0, this.#store)
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
    const { code, stdout } = await this.#run({ ...common, name: `nix-build-${round}`, argv: nixBuildArgv(this.flake) })
    refuseUnless(code === 0, 'build_failed', () => `nix build: exit code ${code}: ${job.tail()}`)
    const built = readBuilt(stdout)
    refuseUnless(built !== null, 'build_failed', () => 'nix build: no list of outputs')
    const show = (name: 'new' | 'old') =>
      this.#run({
        ...common,
        name: 'nix-show',
        argv: nixShowArgv(
          built.map(built => built.drvPath),
          name,
        ),
        answers: true,
      })
    const first = await show('new')
    const shown = first.code === 0 ? first : await show('old')
    const derivations = shown.code === 0 ? readDerivations(shown.stdout) : null
    refuseUnless(derivations !== null, 'internal', () => 'nix show-derivation: no list of derivations')
    this.derivations = derivations
    return candidatesOf(built, `${root}/nix`, this.#phase.order.limits.artifactCount)
  }

  #dirs(root: string, uid: number): Bind[] {
    const bind = (dir: string, to: string): Bind => ({ from: makeDir(`${root}/${dir}`, uid), to, writable: true })
    return [bind('home', places.home), bind('tmp', places.tmp), bind('nix', nixPlace)]
  }

  #ca(): Bind {
    return { from: this.#phase.caBundle, to: places.ca, writable: false }
  }

  async #run({ name, uid, network, argv, binds, env, step, answers }: Run): Promise<{ code: number; stdout: string }> {
    const { job, order, site, tools, workDir } = this.#phase
    const { limits } = order
    const answer: Uint8Array[] = []
    let answerBytes = 0
    const code = await runProgram(site, {
      name,
      bounds: {
        timeoutMs: (network ? limits.fetchSeconds : limits.buildSeconds) * 1000,
        memoryBytes: limits.memoryBytes,
        pids: limits.pids,
        diskBytes: network ? limits.fetchBytes : limits.diskBytes,
        outputBytes: answers ? answerBytesMax : limits.logBytes,
      },
      signal: job.signal,
      onStdout: chunk => {
        answerBytes += chunk.length
        if (answerBytes <= answerBytesMax) answer.push(chunk.slice())
      },
      onStderr: job.output(step),
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
    return { code, stdout: Buffer.concat(answer).toString('utf8') }
  }
}

/** Regular files of the outputs; links are not followed. Named by base name if that is unique, else by path. */
function candidatesOf(built: readonly Built[], nixDir: string, countMax: number): Candidate[] {
  const files: { readonly root: string; readonly relative: string }[] = []
  const walk = (root: string, relative: string) => {
    for (const entry of fs.readdirSync(`${root}/${relative}`, { withFileTypes: true })) {
      const path = relative === '' ? entry.name : `${relative}/${entry.name}`
      if (entry.isDirectory()) walk(root, path)
      else if (entry.isFile()) files.push({ root, relative: path })
      // One too many is enough for the refusal.
      if (files.length > countMax) return
    }
  }
  for (const output of new Set(built.flatMap(built => built.outputs))) {
    const path = `${nixDir}/${output.slice(nixPlace.length + 1)}`
    const stat = fs.lstatSync(path)
    if (stat.isDirectory()) walk(path, '')
    else if (stat.isFile()) {
      const at = path.lastIndexOf('/')
      files.push({ root: path.slice(0, at), relative: path.slice(at + 1) })
    }
  }
  // The name of an output that is a file begins with its digest.
  const nameOf = (relative: string) => relative.slice(relative.lastIndexOf('/') + 1).replace(/^[0-9a-z]{32}-/, '')
  const counts = Map.groupBy(files, file => nameOf(file.relative).toLowerCase())
  return files.map(file => {
    const name = nameOf(file.relative)
    return { ...file, name: counts.get(name.toLowerCase())?.length === 1 ? name : file.relative }
  })
}
