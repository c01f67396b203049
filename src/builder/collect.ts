// A build's artifacts: regular files only, opened by descriptor after its last process ended. Effects: reads files.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { isArtifactName } from '../attest/provenance/paths.ts'
import { systemErrorCode } from '../base/fault.ts'
import type { BuildLimits } from '../contract/vm/build-order.ts'
import { showName } from '../linux/source/tree.plan.ts'
import { BuildFailure, refuseUnless } from './failure.ts'

/** A file named by the build: its path for the builder, and the build directory that must contain it. */
export type Candidate = { readonly name: string; readonly root: string; readonly relative: string }

export type CollectedFile = {
  readonly name: string
  readonly path: string
  readonly executable: boolean
  readonly sizeBytes: number
  readonly sha256: string
}

const chunkBytes = 1024 * 1024
const SET_ID = 0o6000

/**
 * Collects the artifacts, sorted by name. Failures: `no_artifacts`, `limit_exceeded`, `build_failed` for a file that
 * cannot be an artifact.
 */
export async function collect(
  candidates: readonly Candidate[],
  limits: Pick<BuildLimits, 'artifactBytes' | 'artifactCount'>,
): Promise<CollectedFile[]> {
  refuseUnless(
    candidates.length <= limits.artifactCount,
    'limit_exceeded',
    () => `artifacts: ${candidates.length}, at most ${limits.artifactCount}`,
  )
  const byName = new Map<string, Candidate>()
  for (const candidate of candidates) {
    refuseUnless(
      isArtifactName(candidate.name),
      'build_failed',
      () => `artifact ${showName(candidate.name)}: not a plain name`,
    )
    const other = [...byName.keys()].find(name => name.toLowerCase() === candidate.name.toLowerCase())
    refuseUnless(
      other === undefined,
      'build_failed',
      () =>
        `artifacts ${showName(other ?? '')} and ${showName(candidate.name)}: the names are equal, or differ only in case`,
    )
    byName.set(candidate.name, candidate)
  }
  const collected: CollectedFile[] = []
  let leftBytes = limits.artifactBytes
  for (const name of [...byName.keys()].sort()) {
    const candidate = byName.get(name)
    if (candidate === undefined) throw new Error('invariant broken: a name without its candidate')
    const artifact = await measure(candidate, leftBytes)
    leftBytes -= artifact.sizeBytes
    collected.push(artifact)
  }
  refuseUnless(collected.length > 0, 'no_artifacts', () => 'the build produced no artifact: the outputs have no file')
  return collected
}

async function measure({ name, root, relative }: Candidate, bytesMax: number): Promise<CollectedFile> {
  const shown = showName(name)
  const path = `${root}/${relative}`
  await checkParents(root, relative, shown)
  const file = await openRegular(path, shown)
  try {
    const stat = await file.stat()
    refuseUnless(stat.isFile(), 'build_failed', () => `artifact ${shown}: not a regular file`)
    refuseUnless((stat.mode & SET_ID) === 0, 'build_failed', () => `artifact ${shown}: set-user-ID or set-group-ID`)
    refuseUnless(stat.size <= bytesMax, 'limit_exceeded', () => 'artifacts: larger than the service allows')
    const sha256 = createHash('sha256')
    const chunk = new Uint8Array(chunkBytes)
    let sizeBytes = 0
    for (;;) {
      const { bytesRead } = await file.read(chunk, 0, chunk.length, null)
      if (bytesRead === 0) break
      sizeBytes += bytesRead
      sha256.update(chunk.subarray(0, bytesRead))
    }
    refuseUnless(sizeBytes === stat.size, 'internal', () => `artifact ${shown}: changed while it was read`)
    return { name, path, executable: (stat.mode & 0o111) !== 0, sizeBytes, sha256: sha256.digest('hex') }
  } finally {
    await file.close()
  }
}

/** Returns regular files below a directory of a build, and the omitted links. Stops at one more than `countMax`. */
export function filesBelow(root: string, countMax: number): { files: string[]; links: string[] } {
  const found = { files: [] as string[], links: [] as string[] }
  const left = ['']
  for (let dir = left.pop(); dir !== undefined; dir = left.pop()) {
    for (const entry of fs.readdirSync(`${root}/${dir}`, { withFileTypes: true })) {
      const path = dir === '' ? entry.name : `${dir}/${entry.name}`
      if (entry.isDirectory()) left.push(path)
      else if (entry.isFile()) found.files.push(path)
      else if (found.links.length < countMax) found.links.push(path)
      if (found.files.length > countMax) return found
    }
  }
  return found
}

/** Requires a path without links. No process writes there any more, so the result stays true. */
async function checkParents(root: string, relative: string, shown: string): Promise<void> {
  const components = relative.split('/')
  refuseUnless(
    !components.some(component => component === '' || component === '.' || component === '..'),
    'build_failed',
    () => `artifact ${shown}: not below the build's output`,
  )
  for (let depth = 1; depth < components.length; depth += 1) {
    const parent = await fs.promises.lstat([root, ...components.slice(0, depth)].join('/')).catch(() => null)
    refuseUnless(parent?.isDirectory() === true, 'build_failed', () => `artifact ${shown}: below a link, or missing`)
  }
}

export async function openRegular(path: string, shown: string): Promise<fs.promises.FileHandle> {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = fs.constants
  try {
    return await fs.promises.open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
  } catch (cause) {
    const why = systemErrorCode(cause) === 'ELOOP' ? 'a link' : 'missing, or cannot be read'
    throw new BuildFailure('build_failed', `artifact ${shown}: ${why}`, { cause })
  }
}
