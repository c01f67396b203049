// Reads the source from exchange disk or repository, and identifies it. Effects: files on the scratch disk, git.

import * as fs from 'node:fs'
import { takeArchive } from '../../linux/source/archive-tree.ts'
import type { SourceTree } from '../../linux/source/git-tree.ts'
import { showName } from '../../linux/source/tree.plan.ts'
import { checkSource } from '../exchange.ts'
import { refuseUnless } from '../failure.ts'
import { type Phase, uids } from '../phase.ts'
import { makeDir } from '../workspace.ts'
import { checkClone } from './clone.plan.ts'
import { cloneSource, type FetchedSubmodule, readSubmodules } from './clone.ts'

export type Source = {
  /** Directory owned by root, not writable for others. */
  readonly root: string
  readonly tree: SourceTree
  /** Address; '' for an archive. */
  readonly uri: string
  readonly commit: string | null
  /** Name of the archive or repository, for a project without a name. */
  readonly name: string
  /** Submodules fetched by a clone. */
  readonly submodules: readonly FetchedSubmodule[]
  /** Paths of submodules without files in an archive, for messages. */
  readonly missingSubmodules: readonly string[]
}

/** Reads the source. Failures: `source_invalid`, `source_unreachable`, and those of programs. */
export async function takeSource(phase: Phase, device: string, openNetwork: () => Promise<string>): Promise<Source> {
  const source = await takenSource(phase, device, openNetwork)
  const { lfsPointers } = source.tree
  if (lfsPointers.length === 0) return source
  const names = lfsPointers.slice(0, lfsShownMax).map(showName).join(', ')
  const found = `Git LFS pointers without their content, ${lfsPointers.length}: ${names}`
  refuseUnless(
    phase.order.waivers.includes('allow_lfs_pointers'),
    'source_invalid',
    () =>
      `source: ${found}; send an archive made after \`git lfs pull\`, or accept them with allow_lfs_pointers (--allow-lfs-pointers)`,
  )
  phase.job.say('init', `accepted: ${found}`)
  return source
}

const lfsShownMax = 5
const missingShownMax = 16

async function takenSource(phase: Phase, device: string, openNetwork: () => Promise<string>): Promise<Source> {
  const { source, limits } = phase.order
  const into = `${phase.workDir}/source`
  const bounds = { bytesMax: limits.sourceBytes, entriesMax: limits.sourceEntries }
  if (source.kind === 'git') {
    const url = checkClone(source)
    refuseUnless(
      phase.order.fetch !== null,
      'source_unreachable',
      () => 'repo_url: this service does not fetch; send an archive',
    )
    phase.job.say('fetch', `git fetch of ${url.href}${source.ref === null ? '' : `, ref ${source.ref}`}`)
    const { tree, submodules, ...cloned } = await cloneSource(phase, source, await openNetwork(), into)
    phase.job.say('fetch', `commit ${cloned.commit}`)
    return {
      root: into,
      tree,
      uri: cloned.uri,
      commit: cloned.commit,
      name: baseName(url.pathname, /\.git$/),
      submodules,
      missingSubmodules: [],
    }
  }
  refuseUnless(
    source.sizeBytes <= limits.sourceBytes,
    'source_invalid',
    () => `source: more than ${limits.sourceBytes} bytes`,
  )
  await checkSource(device, source)
  makeDir(into, 0)
  fs.chmodSync(into, 0o755)
  const { root, stripped, unpacked, tree } = await takeArchive({
    device,
    sizeBytes: source.sizeBytes,
    into,
    projectDir: phase.order.projectDir,
    unprivileged,
    ...bounds,
  })
  phase.job.say('init', `${unpacked.format} of ${source.sizeBytes} bytes, SHA-256 ${source.sha256}, unpacked`)
  for (const what of unpacked.leftOut) phase.job.say('init', `left out: ${what}; the tree id covers the other files`)
  if (stripped !== null) phase.job.say('init', `the one top-level directory ${stripped} is taken for the source's root`)
  const name = source.name === null ? (stripped ?? 'source') : baseName(source.name, archiveEnding)
  const missingSubmodules = readSubmodules(root, missingShownMax)
    .map(({ path }) => path)
    .filter(path => !tree.directories.has(path))
  if (missingSubmodules.length > 0)
    phase.job.say('init', `submodules are missing: ${missingSubmodules.map(showName).join(', ')}`)
  return { root, tree, uri: '', commit: null, name, submodules: [], missingSubmodules }
}

const archiveEnding = /\.(?:tar(?:\.(?:gz|xz|zst))?|tgz|txz|tzst|zip)$/i

/** Runs a decoder of the client's bytes without privileges, to be killed with this process. */
const unprivileged = [
  ...['setpriv', `--reuid=${uids.fetch}`, `--regid=${uids.fetch}`, '--clear-groups', '--no-new-privs'],
  ...['--inh-caps=-all', '--bounding-set=-all', '--pdeathsig=KILL', '--'],
]

function baseName(path: string, ending: RegExp): string {
  return (path.split(/[/\\]/).filter(Boolean).at(-1) ?? '').replace(ending, '')
}
