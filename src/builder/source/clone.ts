// Fetches a source with git. Effects: programs with the network of this VM, files on the scratch disk.

import * as fs from 'node:fs'
import { readTextOrNull } from '../../linux/files.ts'
import { type Bounds, runProgram } from '../confined/program.ts'
import { BuildFailure, refuseUnless } from '../failure.ts'
import { type Phase, places, plainEnvironment, uids } from '../phase.ts'
import { giveTo, makeDir, remove } from '../workspace.ts'
import {
  attributes,
  type CloneOrder,
  checkClone,
  checkoutArgv,
  fetchArgv,
  gitEnvironment,
  gitPlaces,
  idsArgv,
  initArgv,
} from './clone.plan.ts'

type Cloned = {
  /** 40 hexadecimal digits, from git; the caller compares the tree with the files on disk. */
  readonly commit: string
  readonly tree: string
  readonly uri: string
}

const gitMemoryBytes = 1024 ** 3
const gitPids = 64
const gitOutputBytes = 1024 * 1024

/** Writes the commit's files to `into`, new and root's. Failures: `source_*`, and those of runProgram. */
export async function cloneSource(phase: Phase, order: CloneOrder, proxy: string, into: string): Promise<Cloned> {
  const url = checkClone(order)
  const { limits } = phase.order
  const gitDir = makeDir(`${phase.workDir}/git`, uids.fetch)
  makeDir(into, uids.fetch)
  const bounds: Bounds = {
    timeoutMs: limits.fetchSeconds * 1000,
    memoryBytes: Math.min(gitMemoryBytes, limits.memoryBytes),
    pids: gitPids,
    diskBytes: limits.fetchBytes + limits.sourceBytes,
    outputBytes: gitOutputBytes,
  }
  const git = async (argv: readonly string[], network: boolean): Promise<{ code: number; stdout: string }> => {
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
    return { code, stdout: Buffer.concat(output).toString('latin1') }
  }
  const must = async (argv: readonly string[]): Promise<string> => {
    const { code, stdout } = await git(argv, false)
    refuseUnless(code === 0, 'source_invalid', () => `git ${argv.at(-1)}: exit code ${code}: ${phase.job.tail()}`)
    return stdout
  }

  await must(initArgv())
  fs.mkdirSync(`${gitDir}/info`, { recursive: true })
  fs.writeFileSync(`${gitDir}/info/attributes`, attributes)
  const fetched = await git(fetchArgv(url, order.ref), true)
  if (fetched.code !== 0) throw fetchFailure(url, order.ref, fetched.code, phase.job.tail())
  await must(checkoutArgv())
  const [commit = '', tree = ''] = (await must(idsArgv())).trim().split('\n')
  refuseUnless(
    /^[0-9a-f]{40}$/.test(commit) && /^[0-9a-f]{40}$/.test(tree),
    'source_invalid',
    () => 'git: no commit in the repository',
  )
  await remove(gitDir)
  await giveTo(0, into)
  return { commit, tree, uri: url.href }
}

/** An object that git refuses is the repository's fault; a failed download is not. */
function fetchFailure(url: URL, ref: string | null, code: number, tail: string): BuildFailure {
  const isFsck = /fsck|error in (?:tree|commit|tag|blob|object)|hasDotdot|hasDotgit|fullPathname|symlink/i.test(tail)
  const what = `git fetch of ${url.href}${ref === null ? '' : `, ref ${ref}`}: exit code ${code}`
  if (isFsck) return new BuildFailure('source_invalid', `${what}: git refuses an object: ${tail}`)
  const advice = 'check URL and ref, that the repository is public, and that the operator allows its host'
  return new BuildFailure('source_unreachable', `${what}; ${advice}: ${tail}`)
}

/** The reason why the files are not the commit's. Failure `source_invalid`. */
export function refuseOtherTree(cloned: Cloned, found: string, root: string): void {
  if (cloned.tree === found) return
  const modules = readTextOrNull(`${root}/.gitmodules`) !== null
  const why = modules
    ? 'it has submodules, which are not fetched; send an archive with their files'
    : 'a file cannot be put on disk as it is'
  throw new BuildFailure(
    'source_invalid',
    `git: commit ${cloned.commit} has tree ${cloned.tree}, on disk is ${found}: ${why}`,
  )
}
