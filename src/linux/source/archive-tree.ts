// An archive as a build takes it: unpacked, with its root directory and git's tree id. Build VM and client both compute
// it here, so they cannot differ. Effects: reads one file, writes below one directory.

import * as fs from 'node:fs'
import { SourceFailure } from './failure.ts'
import { hashTree, type SourceTree, type TreeBounds } from './git-tree.ts'
import { sourceDateEpoch } from './tree.plan.ts'
import { type Unpacked, type UnpackOrder, unpackArchive } from './unpack.ts'

type TakenArchive = {
  readonly root: string
  /** The top-level directory that is no part of the source. */
  readonly stripped: string | null
  readonly unpacked: Unpacked
  readonly tree: SourceTree
}

/** SourceFailure, after which `into` holds a part of the source. */
export async function takeArchive(
  order: UnpackOrder & Pick<TreeBounds, 'bytesMax' | 'entriesMax'> & { readonly projectDir: string | null },
): Promise<TakenArchive> {
  const unpacked = await unpackArchive(order)
  const { root, stripped } = stripTop(order.into, order.projectDir)
  const tree = await hashTree(root, { ...order, timeSeconds: sourceDateEpoch })
  return { root, stripped, unpacked, tree }
}

/**
 * Archives of repositories have all files below one directory that is not the repository's. If project_dir begins with
 * that directory, the client counts it as part of the source.
 */
function stripTop(into: string, projectDir: string | null): { root: string; stripped: string | null } {
  const [first, ...others] = fs.readdirSync(into, { withFileTypes: true })
  if (first === undefined) throw new SourceFailure('source: there is no file in it')
  const named = projectDir?.replace(/^(\.\/)+/, '').split('/')[0]
  if (others.length > 0 || !first.isDirectory() || named === first.name) return { root: into, stripped: null }
  return { root: `${into}/${first.name}`, stripped: first.name }
}
