// Go as a toolchain: lists what it compiles, fetches modules, compares them with go.sum, builds offline. Effects:
// programs, files on scratch.

import * as fs from 'node:fs'
import type { BuildRecord } from '../../attest/provenance/record.ts'
import { goOptionsOf } from '../../contract/http/option-words.ts'
import type { Candidate } from '../collect.ts'
import type { Bind } from '../confined/root.plan.ts'
import { BuildFailure, exitText, refuseUnless } from '../failure.ts'
import { type Phase, places, uids } from '../phase.ts'
import { directoryIn, readBounded, readLock } from '../project.ts'
import { Sandbox } from '../sandbox.ts'
import type { Source } from '../source/extract-source.ts'
import { checkPinned, toolOf } from '../tool.ts'
import type { Project, Toolchain, ToolchainRun } from '../toolchain.ts'
import { giveTo, makeDir, openToAll } from '../workspace.ts'
import { checkModules, emptyUnused } from './cache.ts'
import { goBuildFailure, goFailure } from './causes.plan.ts'
import {
  type GoMode,
  goBuildArgv,
  goEnvironment,
  goFetchEnvironment,
  goListArgv,
  goPlaces,
  goVersionArgv,
} from './go.plan.ts'
import { libraryBinds } from './library.ts'
import { type ListedPackage, readGoList, readLinked } from './list.codec.ts'
import { describeModule, pinnedGo } from './manifest.codec.ts'
import { checkLinked, modulesOf, programsOf } from './modules.plan.ts'
import { readGoSum } from './sum.codec.ts'

const files = { manifest: 'go.mod', lock: 'go.sum', makeLock: 'go mod tidy' } as const

export const goToolchain: Toolchain = { ...files, problemOf: () => null, describe: describeModule, start: startGo }

/** Prepares a build. Failure `source_invalid` of go.mod and go.sum. */
async function startGo(phase: Phase, project: Project, { root, tree }: Source): Promise<ToolchainRun> {
  const { job, order } = phase
  const at = (name: string) => (project.dir === '' ? name : `${project.dir}/${name}`)
  // Go would follow a link, and read another lock than the recorded one.
  const has = (name: string) => {
    const found = fs.lstatSync(`${root}/${at(name)}`, { throwIfNoEntry: false })
    refuseUnless(found?.isFile() !== false, 'source_invalid', () => `${at(name)}: not a regular file`)
    return found !== undefined
  }
  refuseUnless(
    fs.existsSync(phase.tools.fileOf('go')),
    'toolchain_undetected',
    () => `${at('go.mod')}: this builder image has no Go; ask the operator for one that has`,
  )
  const go = await toolOf(phase, 'go')
  const pinned = pinnedGo(await readBounded(`${root}/${at('go.mod')}`, 'go.mod'), at('go.mod'))
  checkPinned(phase, pinned, go)
  const mode: GoMode = has('vendor/modules.txt') ? 'vendor' : 'readonly'
  // A project without external modules has no go.sum.
  const lock = await readLock(
    root,
    has('go.sum') ? files : { ...files, lock: 'go.mod' },
    at(has('go.sum') ? 'go.sum' : 'go.mod'),
  )
  const sums = readGoSum(has('go.sum') ? lock.text : '')
  const hasWorkspace = workspaceAbove(root, project.dir)
  const failure = (what: string) => goFailure(what, job.tail(), hasWorkspace)
  const runs = new Sandbox(phase, project, root, [goPlaces.path])
  let cache: Bind[] = []
  let listed: readonly ListedPackage[] = []
  let found: Pick<BuildRecord, 'packages' | 'members'> = { packages: [], members: [] }

  const treeOf = treesOf(root, tree)
  const offline = goEnvironment(phase.tools.path, mode)
  const list = (fetched: ReadonlyMap<string, string>, stdout: string) => {
    const packages = readGoList(stdout)
    refuseUnless(packages !== null, 'build_failed', () => 'go list: unexpected output')
    programsOf(packages)
    listed = packages
    found = modulesOf({ packages, projectDir: project.dir, fetched, treeOf })
  }
  return {
    lock,
    fetch: async openNetwork => {
      const first = await runs.run({ name: 'go-list', argv: goListArgv(), env: offline, binds: [], step: 'fetch' })
      if (first.code === 0) {
        list(new Map(), first.stdout)
        return job.say('fetch', mode === 'vendor' ? 'vendor/ has every module: nothing to fetch' : 'nothing to fetch')
      }
      const cause = failure(`go list: exit code ${first.code}`)
      if (cause.errorType !== 'source_unreachable' || order.fetch === null) throw cause
      const { fetched, cacheDir, binds } = await fetchModules(phase, runs, { openNetwork, sums, failure })
      cache = binds
      const again = { name: 'go-list-fetched', argv: goListArgv(), env: offline, binds: cache, step: 'fetch' } as const
      const second = await runs.run(again)
      if (second.code !== 0) throw failure(`go list: exit code ${second.code}`)
      list(fetched, second.stdout)
      emptyUnused(cacheDir, fetched, listed)
    },
    build: async round => {
      const programs = programsOf(listed)
      refuseUnless(
        programs.length > 0,
        'no_artifacts',
        () =>
          'the build produced no artifact: no package of the module is a program (`package main`); name a module that has one by project_dir',
      )
      const target = makeDir(`${phase.workDir}/go-target-${round}`, uids.build)
      const binds = [...cache, { from: target, to: places.target, writable: true }]
      const name = `go-build-${round}`
      const compiling = [...binds, ...(await libraryBinds(phase, `go-cache-${round}`))]
      const { code } = await runs.run({ name, argv: goBuildArgv(), env: offline, binds: compiling, step: 'build' })
      if (code !== 0) throw goBuildFailure(`go build: ${exitText(code, order.limits)}`, job.tail())
      const asked = { name: `go-version-${round}`, argv: goVersionArgv(), env: offline, binds, step: 'build' } as const
      const { code: exit, stdout } = await runs.run(asked)
      refuseUnless(exit === 0, 'build_failed', () => `go version -m: exit code ${exit}`)
      checkLinked(readLinked(stdout), listed)
      return programs.map((program): Candidate => ({ name: program, root: target, relative: program }))
    },
    facts: async () => ({
      ...found,
      tools: { toolchain: 'go', programs: { go } },
      command: goBuildArgv(),
      environment: offline,
      pinned,
      rust: null,
      evaluation: null,
    }),
  }
}

/** Returns a function that finds the tree id of a directory of the source; null for any other directory. */
function treesOf(root: string, { directories }: Source['tree']) {
  return (directory: string) => {
    const path = directoryIn(root, directory)
    const sha256 = path === null ? undefined : directories.get(path)
    return path === null || sha256 === undefined ? null : { path, sha256 }
  }
}

/** Reports whether the directory, or one above it in the source, has a go.work. */
function workspaceAbove(root: string, dir: string): boolean {
  const components = dir === '' ? [] : dir.split('/')
  return [...components, ''].some((_, depth) =>
    fs.existsSync([root, ...components.slice(0, depth), 'go.work'].join('/')),
  )
}

type Fetching = {
  readonly openNetwork: () => Promise<string>
  readonly sums: ReturnType<typeof readGoSum>
  /** Returns go's failure, from its exit and output. */
  readonly failure: (what: string) => BuildFailure
}

/** Fetches the modules that the project needs. Failures: `source_unreachable`, `checksum_mismatch`, `lock_missing`. */
async function fetchModules(
  phase: Phase,
  runs: Sandbox,
  { openNetwork, sums, failure }: Fetching,
): Promise<{ fetched: ReadonlyMap<string, string>; cacheDir: string; binds: Bind[] }> {
  const { job, order, workDir, tools, caBundle } = phase
  const modules = goOptionsOf(order.options)?.proxy ?? null
  if (modules === null)
    throw new BuildFailure(
      'source_unreachable',
      'modules of go.sum are not in the source, and the request does not set go_proxy: set it to a module proxy, or run `go mod vendor` and send vendor/ with the source',
    )
  job.say('fetch', `modules from ${modules}`)
  const proxy = await openNetwork()
  const home = makeDir(`${workDir}/go-fetched`, uids.fetch)
  const writable = { from: makeDir(`${home}/mod`, uids.fetch), to: goPlaces.modules, writable: true }
  const env = goFetchEnvironment(tools.path, { proxy, modules })
  const binds = [writable, { from: caBundle, to: places.ca, writable: false }]
  const fetch = { name: 'go-fetch', argv: goListArgv(), env, binds, step: 'fetch' } as const
  const { code } = await runs.run(fetch, { network: true, uid: uids.fetch })
  if (code !== 0) throw failure(`go list: exit code ${code}`)
  await giveTo(0, home)
  await openToAll(home)
  fs.chmodSync(home, 0o711)
  const fetched = await checkModules(writable.from, sums)
  job.say('fetch', `each fetched module has its hash of go.sum: ${fetched.size}`)
  return { fetched, cacheDir: writable.from, binds: [{ ...writable, writable: false }] }
}
