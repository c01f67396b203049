// Fetches a source and its submodules with git. Effects: programs with the network of this VM, files on the scratch
// disk.

import * as fs from 'node:fs'
import { hashTree, type SourceTree } from '../../linux/source/git-tree.ts'
import { modulesBytesMax, type NamedSubmodule, submodulesIn } from '../../linux/source/gitmodules.ts'
import { readName, showName, sourceDateEpoch } from '../../linux/source/tree.plan.ts'
import { type Bounds, runProgram } from '../confined/program.ts'
import { BuildFailure, refuseUnless } from '../failure.ts'
import { type Phase, places, plainEnvironment, uids } from '../phase.ts'
import { giveTo, makeDir, remove } from '../workspace.ts'
import {
  attributes,
  type CloneOrder,
  checkClone,
  checkoutArgv,
  checkSubmodule,
  entriesArgv,
  fetchArgv,
  fetchFailure,
  gitEnvironment,
  gitPlaces,
  idsArgv,
  initArgv,
  mayPass,
  readSubmoduleCommits,
  submoduleFailure,
} from './clone.plan.ts'

/** A submodule whose files are in the source. */
export type FetchedSubmodule = {
  /** Relative to the source. */
  readonly path: string
  readonly url: string
  /** 40 hexadecimal digits. */
  readonly commit: string
}

type Cloned = {
  /** 40 hexadecimal digits. The files on disk were compared with its tree. */
  readonly commit: string
  readonly uri: string
  readonly submodules: readonly FetchedSubmodule[]
  readonly tree: SourceTree
}

const attemptsMax = 3
const retryMs = 2_000
const gitMemoryBytes = 1024 ** 3
const gitPids = 64
const gitOutputBytes = 1024 * 1024
const submodulesMax = 32
const submoduleDepthMax = 4

/** State of one clone. The limits apply to the source with all its submodules. */
type Cloning = {
  readonly phase: Phase
  readonly proxy: string
  readonly endsAtMs: number
  leftBytes: number
  leftEntries: number
  readonly submodules: FetchedSubmodule[]
}

type Repository = {
  readonly url: URL
  readonly ref: string | null
  readonly into: string
  /** Path of its directory in the source; '' for the source itself. */
  readonly path: string
  readonly depth: number
}

/**
 * Writes the files of a commit and its submodules to `into`, a new directory owned by root. Failures: `source_*`, and
 * those of runProgram.
 */
export async function cloneSource(phase: Phase, order: CloneOrder, proxy: string, into: string): Promise<Cloned> {
  const url = checkClone(order)
  const { limits } = phase.order
  const cloning: Cloning = {
    phase,
    proxy,
    endsAtMs: phase.site.clock.monotonicMs() + limits.fetchSeconds * 1000,
    leftBytes: limits.sourceBytes,
    leftEntries: limits.sourceEntries,
    submodules: [],
  }
  makeDir(into, uids.fetch)
  const { commit, tree } = await checkOut(cloning, { url, ref: order.ref, into, path: '', depth: 0 })
  const { submodules } = cloning
  if (submodules.length === 0) return { commit, uri: url.href, submodules, tree }
  const bounds = { bytesMax: limits.sourceBytes, entriesMax: limits.sourceEntries, timeSeconds: sourceDateEpoch }
  return { commit, uri: url.href, submodules, tree: await hashTree(into, bounds) }
}

/** Writes the files of one repository, then those of its submodules. `into` is empty, and owned by the fetch's user. */
async function checkOut(cloning: Cloning, repository: Repository): Promise<{ commit: string; tree: SourceTree }> {
  const { into, path } = repository
  const gitDir = makeDir(`${cloning.phase.workDir}/git`, uids.fetch)
  const must = async (argv: readonly string[]): Promise<string> => {
    const { code, stdout } = await runGit(cloning, { argv, network: false, gitDir, into })
    const { job } = cloning.phase
    refuseUnless(code === 0, 'source_invalid', () => `git ${argv.at(-1)}: exit code ${code}: ${job.tail()}`)
    return stdout
  }
  await must(initArgv())
  fs.mkdirSync(`${gitDir}/info`, { recursive: true })
  fs.writeFileSync(`${gitDir}/info/attributes`, attributes)
  await fetchCommit(cloning, repository, gitDir)
  await must(checkoutArgv())
  const [commit = '', treeId = ''] = (await must(idsArgv())).trim().split('\n')
  refuseUnless(
    /^[0-9a-f]{40}$/.test(commit) && /^[0-9a-f]{40}$/.test(treeId),
    'source_invalid',
    () => 'git: the repository has no commit',
  )
  const named = namedSubmodules(into)
  const commits = named.size === 0 ? new Map() : readSubmoduleCommits(await must(entriesArgv([...named.keys()])))
  await remove(gitDir)
  await giveTo(0, into)
  fs.chmodSync(into, 0o755)
  const tree = await hashTree(into, {
    bytesMax: cloning.leftBytes,
    entriesMax: cloning.leftEntries,
    timeSeconds: sourceDateEpoch,
    submodules: commits,
  })
  refuseOtherTree({ commit, tree: treeId, path }, tree.sha1)
  cloning.leftBytes -= tree.sizeBytes
  cloning.leftEntries -= tree.fileCount
  for (const [at, wanted] of commits) {
    await checkOutSubmodule(cloning, repository, {
      named: named.get(at) ?? { path: at, url: null },
      at,
      commit: wanted,
    })
  }
  return { commit, tree }
}

async function checkOutSubmodule(
  cloning: Cloning,
  parent: Repository,
  submodule: { readonly named: NamedSubmodule; readonly at: string; readonly commit: string },
): Promise<void> {
  const path = parent.path === '' ? submodule.at : `${parent.path}/${submodule.at}`
  const depth = parent.depth + 1
  const advice = 'send an archive made after `git submodule update --init --recursive`'
  refuseUnless(
    cloning.submodules.length < submodulesMax && depth <= submoduleDepthMax,
    'source_invalid',
    () =>
      `submodule ${showName(path)}: a clone fetches at most ${submodulesMax} submodules, ${submoduleDepthMax} within each other; ${advice}`,
  )
  const url = checkSubmodule({ path, url: submodule.named.url })
  const { commit } = submodule
  cloning.phase.job.say('fetch', `submodule ${showName(path)}: git fetch of ${url.href}, commit ${commit}`)
  cloning.submodules.push({ path, url: url.href, commit })
  const into = `${parent.into}/${submodule.at}`
  fs.chownSync(into, uids.fetch, uids.fetch)
  const found = await checkOut(cloning, { url, ref: commit, into, path, depth })
  refuseUnless(
    found.commit === commit,
    'source_invalid',
    () => `submodule ${showName(path)}: ${url.href} answered with commit ${found.commit} instead of ${commit}`,
  )
}

async function fetchCommit(cloning: Cloning, { url, ref, into, path }: Repository, gitDir: string): Promise<void> {
  const { job, site } = cloning.phase
  for (let attempt = 1; ; attempt += 1) {
    const { code } = await runGit(cloning, { argv: fetchArgv(url, ref), network: true, gitDir, into })
    if (code === 0) return
    const tail = job.tail()
    if (attempt === attemptsMax || !mayPass(tail)) {
      const failure = fetchFailure(url, ref, code, tail)
      throw path === '' ? failure : submoduleFailure(path, failure)
    }
    job.say('fetch', `git fetch failed; attempt ${attempt + 1} of ${attemptsMax} follows`)
    await site.clock.sleep(retryMs * attempt, job.signal)
  }
}

type GitRun = {
  readonly argv: readonly string[]
  readonly network: boolean
  readonly gitDir: string
  readonly into: string
}

async function runGit(
  { phase, proxy, endsAtMs, leftBytes }: Cloning,
  { argv, network, gitDir, into }: GitRun,
): Promise<{ code: number; stdout: string }> {
  const { limits } = phase.order
  const bounds: Bounds = {
    timeoutMs: Math.max(endsAtMs - phase.site.clock.monotonicMs(), 1),
    memoryBytes: Math.min(gitMemoryBytes, limits.memoryBytes),
    pids: gitPids,
    diskBytes: limits.fetchBytes + leftBytes,
    outputBytes: gitOutputBytes,
  }
  const output: Uint8Array[] = []
  const code = await runProgram(phase.site, {
    name: 'git',
    bounds,
    signal: phase.job.signal,
    onStdout: chunk => output.push(chunk.slice()),
    onStderr: phase.job.output('fetch'),
    plan: {
      uid: uids.fetch,
      network,
      nestedNamespaces: false,
      cwd: gitPlaces.tree,
      argv,
      binds: [
        ...phase.tools.binds,
        { from: gitDir, to: gitPlaces.dir, writable: true },
        { from: into, to: gitPlaces.tree, writable: true },
        { from: phase.caBundle, to: places.ca, writable: false },
      ],
      etcDir: `${phase.workDir}/etc-fetch`,
      env: { ...plainEnvironment, PATH: phase.tools.path, ...gitEnvironment(proxy) },
    },
  })
  return { code, stdout: Buffer.concat(output).toString('utf8') }
}

/** Returns the submodules in .gitmodules by path. Failure `source_invalid` for a path that leads out. */
function namedSubmodules(root: string): Map<string, NamedSubmodule> {
  const all = readSubmodules(root, submodulesMax + 1)
  return new Map(
    all.map(submodule => {
      const name = readName(new TextEncoder().encode(submodule.path))
      refuseUnless(
        name.kind === 'path',
        'source_invalid',
        () => `.gitmodules: submodule ${showName(submodule.path)}: not a relative path inside of the source`,
      )
      return [name.components.join('/'), submodule] as const
    }),
  )
}

/** Rejects files on disk that differ from the commit's. Failure `source_invalid`. */
export function refuseOtherTree(expected: { commit: string; tree: string; path: string }, found: string): void {
  const { commit, tree, path } = expected
  if (tree === found) return
  const where = path === '' ? '' : `submodule ${showName(path)}: `
  throw new BuildFailure(
    'source_invalid',
    `${where}git: commit ${commit} has tree ${tree}, on disk is ${found}: a file cannot be put on disk as it is, or a submodule is missing in .gitmodules`,
  )
}

/** Returns the first submodules in .gitmodules; none if it is not a regular file, or larger than 64 KiB. */
export function readSubmodules(root: string, countMax: number): NamedSubmodule[] {
  const path = `${root}/.gitmodules`
  const stat = fs.lstatSync(path, { throwIfNoEntry: false })
  if (stat?.isFile() !== true || stat.size > modulesBytesMax) return []
  return submodulesIn(fs.readFileSync(path, 'utf8'), countMax)
}
