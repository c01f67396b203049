// Takes in the source from exchange disk or repository, and identifies it. Effects: files on the scratch disk, git.

import * as fs from 'node:fs'
import { takeArchive } from '../../linux/source/archive-tree.ts'
import { hashTree, type SourceTree } from '../../linux/source/git-tree.ts'
import { sourceDateEpoch } from '../../linux/source/tree.plan.ts'
import { checkSource } from '../exchange.ts'
import { refuseUnless } from '../failure.ts'
import type { Phase } from '../phase.ts'
import { makeDir } from '../workspace.ts'
import { checkClone } from './clone.plan.ts'
import { cloneSource, refuseOtherTree } from './clone.ts'

type Source = {
  /** Root's and not writable for others. */
  readonly root: string
  readonly tree: SourceTree
  /** '' for an archive. */
  readonly uri: string
  readonly commit: string | null
  /** Name of the archive or repository, for a project without a name. */
  readonly name: string
}

/** Failures: `source_invalid`, `source_unreachable`, and those of programs. */
export async function takeSource(phase: Phase, device: string, openNetwork: () => Promise<string>): Promise<Source> {
  const { source, limits } = phase.order
  const into = `${phase.workDir}/source`
  const bounds = { bytesMax: limits.sourceBytes, entriesMax: limits.sourceEntries }
  if (source.kind === 'git') {
    const url = checkClone(source)
    refuseUnless(
      phase.order.fetch !== null,
      'source_unreachable',
      () => 'repo_url: this service fetches nothing; send an archive',
    )
    phase.job.say('fetch', `git fetch of ${url.href}${source.ref === null ? '' : `, ref ${source.ref}`}`)
    const cloned = await cloneSource(phase, source, await openNetwork(), into)
    fs.chmodSync(into, 0o755)
    const tree = await hashTree(into, { ...bounds, timeSeconds: sourceDateEpoch })
    refuseOtherTree(cloned, tree.sha1, into)
    phase.job.say('fetch', `commit ${cloned.commit}`)
    return { root: into, tree, uri: cloned.uri, commit: cloned.commit, name: baseName(url.pathname, /\.git$/) }
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
    ...bounds,
  })
  phase.job.say('init', `${unpacked.format} of ${source.sizeBytes} bytes unpacked`)
  if (unpacked.ignoredCount > 0) {
    phase.job.say(
      'init',
      `left out: .git with ${unpacked.ignoredCount} entries, which is not trusted; the tree id is of the files`,
    )
  }
  if (stripped !== null) phase.job.say('init', `the one top-level directory ${stripped} is taken for the source's root`)
  const name = source.name === null ? (stripped ?? 'source') : baseName(source.name, /\.(?:tar\.gz|tgz|tar|zip)$/i)
  return { root, tree, uri: '', commit: null, name }
}

function baseName(path: string, ending: RegExp): string {
  return (path.split(/[/\\]/).filter(Boolean).at(-1) ?? '').replace(ending, '')
}
