// npm and pnpm as toolchains: fetches the files of the lock, installs them offline without scripts, compares the
// installed packages with the lock, then runs the scripts. Effects: programs, files on scratch.

import * as fs from 'node:fs'
import { packageUrl } from '../../attest/provenance/packages.ts'
import type { LockedPackage } from '../../attest/provenance/record.ts'
import { present } from '../../base/assert.ts'
import { isRecord } from '../../base/json.ts'
import { npmOptionsOf, pnpmOptionsOf } from '../../contract/http/option-words.ts'
import { showName } from '../../linux/source/tree.plan.ts'
import { type Candidate, filesBelow } from '../collect.ts'
import type { Bind } from '../confined/root.plan.ts'
import { BuildFailure, exitText, refuseUnless } from '../failure.ts'
import { type Phase, places, uids } from '../phase.ts'
import { readBounded, readLock } from '../project.ts'
import { projectPlace, Sandbox } from '../sandbox.ts'
import type { Source } from '../source/extract-source.ts'
import { toolOf } from '../tool.ts'
import type { Project, Toolchain, ToolchainFiles, ToolchainRun } from '../toolchain.ts'
import { copyFor, giveTo, makeDir, openToAll } from '../workspace.ts'
import { installFailure, noArtifacts } from './causes.plan.ts'
import { fetchFiles, listBind, programBind } from './fetch.ts'
import { type InstalledPackage, installedByNpm, installedByPnpm, recordsOf, urlOfPackage } from './installed.ts'
import { type NpmLock, tarballPath } from './lock.ts'
import { describePackageJson, installManifest, isSetIn, parsedRecord, scriptsOf } from './manifest.codec.ts'
import {
  cacheDirs,
  installScriptsArgv,
  nodePlaces,
  npmEnvironment,
  npmInstallArgv,
  type PackageManager,
  packArgv,
  pnpmEnvironment,
  pnpmInstallArgv,
  registryProgram,
  runBuildArgv,
} from './node.plan.ts'
import { readPackageLock } from './package-lock.codec.ts'
import { readPnpmLock } from './pnpm-lock.ts'

type Manager = ToolchainFiles & {
  readonly read: (lock: string) => NpmLock
  readonly environment: (path: string) => Record<string, string>
  readonly installArgv: (npmrc: string) => string[]
  readonly installed: (nodeModules: string, lock: NpmLock) => Promise<InstalledPackage[]>
  /** Returns the lock's key for a package with its own file. */
  readonly keyOf: (pkg: InstalledPackage) => string
}

const MANAGERS = {
  npm: {
    manifest: 'package.json',
    lock: 'package-lock.json',
    makeLock: 'npm install --package-lock-only',
    read: readPackageLock,
    environment: npmEnvironment,
    installArgv: npmrc => npmInstallArgv({ legacyPeerDeps: isSetIn(npmrc, 'legacy-peer-deps') }),
    installed: installedByNpm,
    keyOf: ({ place }) => `node_modules/${place}`,
  },
  pnpm: {
    manifest: 'package.json',
    lock: 'pnpm-lock.yaml',
    makeLock: 'pnpm install --lockfile-only',
    read: readPnpmLock,
    environment: pnpmEnvironment,
    installArgv: npmrc => pnpmInstallArgv({ shamefullyHoist: isSetIn(npmrc, 'shamefully-hoist') }),
    installed: installedByPnpm,
    keyOf: ({ name, version }) => `${name}@${version}`,
  },
} as const satisfies Record<PackageManager, Manager>

/** Locks of other package managers. */
const otherLocks = ['yarn.lock', 'bun.lock', 'bun.lockb', 'npm-shrinkwrap.json'] as const
const linksShownMax = 8

export const npmToolchain = toolchainOf('npm')
export const pnpmToolchain = toolchainOf('pnpm')

function toolchainOf(name: PackageManager): Toolchain {
  const { manifest, lock, makeLock } = MANAGERS[name]
  const start = (phase: Phase, project: Project, source: Source) => startNode(name, phase, project, source)
  return { manifest, lock, makeLock, problemOf: () => null, describe: describePackageJson, start }
}

/** Prepares a build. Failures: `source_invalid`, `lock_missing`, `toolchain_undetected`. */
async function startNode(
  name: PackageManager,
  phase: Phase,
  project: Project,
  { root, tree }: Source,
): Promise<ToolchainRun> {
  const { tools } = phase
  const manager: Manager = MANAGERS[name]
  const at = (file: string) => (project.dir === '' ? file : `${project.dir}/${file}`)
  const found = (file: string) => fs.lstatSync(`${root}/${at(file)}`, { throwIfNoEntry: false })
  refuseUnless(
    ['node', name].every(program => fs.existsSync(tools.fileOf(program))),
    'toolchain_undetected',
    () => `${at(manager.manifest)}: this builder image has no ${name}; ask the operator for one that has`,
  )
  const other = otherLocks.find(file => found(file) !== undefined)
  if (found(manager.lock) === undefined && other !== undefined)
    throw new BuildFailure(
      'lock_missing',
      `source: ${at(other)} is a lock that this service does not read; run \`${manager.makeLock}\`, and send ${manager.lock} with the source`,
    )
  refuseUnless(
    found('node_modules') === undefined,
    'source_invalid',
    () => `${at('node_modules')}: the builder installs it from ${manager.lock}; leave it out of the source`,
  )
  const file = await readLock(root, manager, at(manager.lock))
  const lock = manager.read(file.text)
  const manifest = parsedRecord(await readBounded(`${root}/${at('package.json')}`, 'package.json'))
  refuseUnless(manifest !== null, 'source_invalid', () => `${at('package.json')}: not a JSON object`)
  const npmrc = found('.npmrc')?.isFile() ? await readBounded(`${root}/${at('.npmrc')}`, '.npmrc') : ''
  const workspace = found('pnpm-workspace.yaml')?.isFile()
    ? await readBounded(`${root}/${at('pnpm-workspace.yaml')}`, 'pnpm-workspace.yaml')
    : ''
  const sha256 = present(tree.directories.get(project.dir), 'the directory of the project has a tree id')
  const node = await toolOf(phase, 'node')
  const tool = await toolOf(phase, name)
  const build = new NodeBuild(phase, project, {
    ...{ name, manager, lock, manifest, npmrc, root },
    allowed: name === 'npm' ? 'all' : allowedScripts(manifest, workspace),
  })
  const own = {
    kind: 'npm-package',
    name: typeof manifest.name === 'string' ? manifest.name : project.name,
    version: project.version,
    origin: 'path',
    from: { kind: 'tree', path: project.dir, sha256 },
    ranScripts: false,
  } as const
  return {
    lock: file,
    fetch: openNetwork => build.fetch(openNetwork),
    build: round => build.build(round),
    facts: async () => ({
      packages: [{ ...own, dependsOn: build.direct() }, ...build.packages],
      members: [packageUrl(own)],
      tools: { toolchain: name, programs: { [name]: tool, node } },
      command: build.command,
      environment: manager.environment(tools.path),
      pinned: null,
      rust: null,
      evaluation: null,
    }),
  }
}

/** Returns the packages whose install scripts pnpm runs: those that the project names. */
function allowedScripts(manifest: Readonly<Record<string, unknown>>, workspace: string): ReadonlySet<string> {
  let settings: unknown = null
  try {
    settings = Bun.YAML.parse(workspace)
  } catch {
    // pnpm itself reports errors in it.
  }
  const lists = [manifest.pnpm, settings].map(value => (isRecord(value) ? value.onlyBuiltDependencies : null))
  return new Set(lists.flatMap(list => (Array.isArray(list) ? list : [])).filter(name => typeof name === 'string'))
}

type NodeProject = {
  readonly name: PackageManager
  readonly manager: Manager
  readonly lock: NpmLock
  readonly manifest: Readonly<Record<string, unknown>>
  readonly npmrc: string
  /** Path of the source on scratch. */
  readonly root: string
  /** Names of packages whose install scripts run. */
  readonly allowed: ReadonlySet<string> | 'all'
}

class NodeBuild {
  readonly #phase: Phase
  readonly #project: Project
  readonly #node: NodeProject
  readonly #sandbox: Sandbox
  #filesDir: string | null = null
  packages: readonly LockedPackage[] = []
  command: readonly string[] = []

  constructor(phase: Phase, project: Project, node: NodeProject) {
    this.#phase = phase
    this.#project = project
    this.#node = node
    this.#sandbox = new Sandbox(phase, project, node.root)
  }

  /** Returns package URLs of the project's own installed dependencies. */
  direct(): string[] {
    const { lock } = this.#node
    const urls = new Set(this.packages.map(packageUrlOf))
    const direct = new Set(lock.direct)
    const own = lock.packages.filter(({ key }) => direct.has(key)).map(urlOfPackage)
    return [...new Set(own)].filter(url => urls.has(url)).sort()
  }

  /** Returns the files that an install on this system may need. */
  get #wanted() {
    return this.#node.lock.packages.filter(({ isOptional, isForBuilder }) => !isOptional || isForBuilder)
  }

  async fetch(openNetwork: () => Promise<string>): Promise<void> {
    const { order, job, workDir } = this.#phase
    const packages = this.#wanted
    const { lock } = this.#node.manager
    if (packages.length === 0) {
      this.#filesDir = makeDir(`${workDir}/node-files`, 0)
      return job.say('fetch', `${lock} names no external package: nothing to fetch`)
    }
    refuseUnless(
      order.fetch !== null,
      'source_unreachable',
      () => `${lock} names ${packages.length} packages, and this service fetches nothing; ask its operator`,
    )
    const { options } = order
    const named = npmOptionsOf(options)?.registry ?? pnpmOptionsOf(options)?.registry
    if (named === undefined)
      throw new BuildFailure(
        'source_unreachable',
        `${lock} names ${packages.length} packages, and the request names no registry; name one by ${this.#node.name}_registry (\`npm config get registry\` prints yours)`,
      )
    const registry = named.replace(/\/+$/, '')
    this.#filesDir = await fetchFiles(this.#phase, this.#sandbox, { packages, registry, openNetwork })
  }

  async build(round: number): Promise<Candidate[]> {
    const { name, manifest, manager, root } = this.#node
    const { job, order, workDir, tools } = this.#phase
    const { dir } = this.#project
    const nodeModules = await this.#install(round)
    const work = makeDir(`${workDir}/node-built-${round}`, 0)
    fs.chmodSync(work, 0o711)
    const source = await copyFor(uids.build, root, `${work}/source`)
    const own = dir === '' ? source : `${source}/${dir}`
    const target = makeDir(`${work}/target`, uids.build)
    const binds = [
      { from: nodeModules, to: `${projectPlace(this.#project)}/node_modules`, writable: false },
      ...cacheDirs.map(cache => ({
        from: makeDir(`${work}/${cache}`, uids.build),
        to: `${projectPlace(this.#project)}/node_modules/${cache}`,
        writable: true,
      })),
      { from: makeDir(`${work}/npm`, uids.build), to: nodePlaces.npm, writable: true },
      { from: target, to: places.target, writable: true },
    ]
    // Otherwise bwrap would create it as the build's user, in the copy of the source.
    makeDir(`${own}/node_modules`, uids.build)
    const run = async (step: string, argv: readonly string[]) => {
      const env = manager.environment(tools.path)
      const program = { name: `node-${step}-${round}`, argv, env, binds, step: 'build', logsOutput: true } as const
      const { code } = await this.#sandbox.run(program, { source: { from: source, writable: true } })
      const failed = `${argv.slice(0, 3).join(' ')}: ${exitText(code, order.limits)}`
      if (code !== 0) throw new BuildFailure('build_failed', `${failed}: ${job.tail()}`)
    }
    const hasBuild = scriptsOf(manifest).build !== undefined
    this.command = hasBuild ? runBuildArgv(name) : packArgv(name)
    if (hasBuild) await run('run', this.command)
    const dist = `${own}/dist`
    const hasDist = fs.lstatSync(dist, { throwIfNoEntry: false })?.isDirectory() === true
    if (!hasDist) {
      if (hasBuild) job.say('build', 'the build produced no dist/: the artifact is the package')
      await run('pack', packArgv(name))
      this.command = hasBuild ? [...runBuildArgv(name), '&&', ...packArgv(name)] : packArgv(name)
    }
    const from = hasDist ? dist : target
    const { files, links } = filesBelow(from, order.limits.artifactCount)
    if (links.length > 0)
      job.say(
        'build',
        `not among the artifacts, because they are links, ${links.length}: ${links.slice(0, linksShownMax).map(showName).join(', ')}`,
      )
    if (files.length === 0) throw noArtifacts(name, { hasDist, links: links.length })
    return files.map(relative => ({ name: relative, root: from, relative }))
  }

  /** Returns the path of node_modules after comparing it with the lock. Owned by root. */
  async #install(round: number): Promise<string> {
    const { name, manager, lock, manifest, npmrc, allowed } = this.#node
    const { job, order, workDir, tools } = this.#phase
    const { dir } = this.#project
    const filesDir = present(this.#filesDir, 'files are fetched before the build')
    const work = makeDir(`${workDir}/node-installed-${round}`, 0)
    fs.chmodSync(work, 0o711)
    const source = makeDir(`${work}/source`, uids.build)
    const own = dir === '' ? source : `${source}/${dir}`
    fs.mkdirSync(own, { recursive: true })
    fs.writeFileSync(`${own}/package.json`, JSON.stringify(installManifest(manifest, lock.overrides)))
    fs.writeFileSync(`${own}/${manager.lock}`, JSON.stringify(lock.installLock))
    await giveTo(uids.build, source)
    const cache = makeDir(`${work}/npm`, uids.build)
    const list = this.#wanted.map(pkg => [tarballPath(pkg), pkg.sha512])
    if (name === 'npm') fillCache(cache, filesDir)
    const argv = manager.installArgv(npmrc)
    const { code } = await this.#sandbox.run(
      {
        name: `node-install-${round}`,
        argv,
        env: manager.environment(tools.path),
        binds: [
          programBind(work, 'registry.cjs', registryProgram),
          listBind(work, 'registry.json', list),
          { from: filesDir, to: nodePlaces.files, writable: false },
          { from: cache, to: nodePlaces.npm, writable: true },
        ],
        step: 'build',
        logsOutput: true,
      },
      { source: { from: source, writable: true } },
    )
    if (code !== 0) throw installFailure(`${argv.join(' ')}: ${exitText(code, order.limits)}`, job.tail())
    const nodeModules = `${own}/node_modules`
    // Without packages, the install creates no directory.
    fs.mkdirSync(nodeModules, { recursive: true })
    const installed = await manager.installed(nodeModules, lock)
    const scripted = installed.filter(({ scripts }) => scripts.length > 0)
    const runs = scripted.filter(pkg => allowed === 'all' || allowed.has(pkg.name))
    const left = scripted.filter(pkg => !runs.includes(pkg)).map(pkg => pkg.name)
    if (left.length > 0)
      job.say('build', `install scripts skipped, because onlyBuiltDependencies does not list them: ${left.join(', ')}`)
    this.packages = recordsOf(lock, installed, manager.keyOf, new Set(runs.map(({ place }) => place)))
    job.say('build', `installed as locked: ${this.packages.length} packages`)
    if (runs.length > 0) await this.#runInstallScripts(round, { source, nodeModules, installed, runs })
    await giveTo(0, nodeModules)
    await openToAll(nodeModules)
    for (const cache of cacheDirs) fs.mkdirSync(`${nodeModules}/${cache}`, { recursive: true })
    return nodeModules
  }

  /** Runs install scripts. Each can write to its own package, but not to a package from another file inside it. */
  async #runInstallScripts(
    round: number,
    install: {
      source: string
      nodeModules: string
      installed: readonly InstalledPackage[]
      runs: readonly InstalledPackage[]
    },
  ): Promise<void> {
    const { source, nodeModules, installed, runs } = install
    const { job, order, tools, workDir } = this.#phase
    const to = `${projectPlace(this.#project)}/node_modules`
    const isInside = (place: string, outer: InstalledPackage) => place.startsWith(`${outer.place}/`)
    // In the order of places, so that an inner bind follows the outer one.
    const binds = installed.flatMap(({ place, bundledIn }): Bind[] => {
      const bind = { from: `${nodeModules}/${place}`, to: `${to}/${place}` }
      if (runs.some(pkg => pkg.place === place)) return [{ ...bind, writable: true }]
      const isOfOther = bundledIn === null && runs.some(outer => isInside(place, outer))
      return isOfOther ? [{ ...bind, writable: false }] : []
    })
    const steps = runs.flatMap(({ place, scripts }) => scripts.flatMap(script => [`${to}/${place}`, script]))
    const names = runs.map(pkg => pkg.name).join(', ')
    job.say('build', `install scripts of ${names}`)
    const { code } = await this.#sandbox.run(
      {
        name: `node-scripts-${round}`,
        argv: installScriptsArgv(steps),
        env: this.#node.manager.environment(tools.path),
        binds: [
          ...binds,
          { from: makeDir(`${workDir}/node-scripts-npm-${round}`, uids.build), to: nodePlaces.npm, writable: true },
        ],
        step: 'build',
        logsOutput: true,
      },
      { source: { from: source, writable: false } },
    )
    refuseUnless(
      code === 0,
      'build_failed',
      () =>
        `install scripts of ${names}: ${exitText(code, order.limits)}; they run without a network, and can write only to their own package: ${job.tail()}`,
    )
  }
}

/** Stores the files where npm expects content by its hash (npmjs.com/package/cacache). */
function fillCache(cache: string, filesDir: string): void {
  for (const sha512 of fs.readdirSync(filesDir)) {
    const into = `${cache}/_cacache/content-v2/sha512/${sha512.slice(0, 2)}/${sha512.slice(2, 4)}`
    fs.mkdirSync(into, { recursive: true })
    fs.linkSync(`${filesDir}/${sha512}`, `${into}/${sha512.slice(4)}`)
  }
  // Change only directories: the files remain root's.
  for (const dir of fs.readdirSync(cache, { recursive: true, withFileTypes: true }))
    if (dir.isDirectory()) fs.chownSync(`${dir.parentPath}/${dir.name}`, uids.build, uids.build)
}

function packageUrlOf(pkg: LockedPackage): string {
  return pkg.kind === 'npm-package' ? packageUrl(pkg) : ''
}
