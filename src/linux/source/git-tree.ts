// Identifies a source on disk by git's tree id in both object formats (gitformat-pack(5), git-mktree(1)). Effects:
// reads a directory that no other program writes meanwhile; sets times; removes directories without a file, which no
// git tree has.
//
// git never runs in it, and an archive's own `.git` has no effect. SHA-256 beside SHA-1, for which collisions exist.

import { createHash, type Hash } from 'node:crypto'
import * as fs from 'node:fs'
import { concat, toHex, utf8 } from '../../base/bytes.ts'
import { refuseUnless } from './failure.ts'
import { componentBytesMax, depthMax, linkTargetProblem, showName } from './tree.plan.ts'

export type SourceTree = {
  /** 40 hexadecimal digits. */
  readonly sha1: string
  /** 64. */
  readonly sha256: string
  readonly fileCount: number
  readonly sizeBytes: number
  /** Tree id in SHA-256 of each directory, by its path relative to the root; '' is the root. */
  readonly directories: ReadonlyMap<string, string>
  /** Paths of Git LFS pointers: files whose content is elsewhere. */
  readonly lfsPointers: readonly string[]
}

/** Git LFS, docs/spec.md: a pointer begins with this line and has fewer than 1024 bytes. */
const lfsPointerStart = utf8('version https://git-lfs.github.com/spec/v1\n')
const lfsPointerBytesEnd = 1024

function isLfsPointer(content: Uint8Array): boolean {
  return content.length < lfsPointerBytesEnd && lfsPointerStart.every((byte, at) => content[at] === byte)
}

export type TreeBounds = {
  readonly bytesMax: number
  readonly entriesMax: number
  /** Time of every file, in seconds since 1970: a build must not see when its source arrived. */
  readonly timeSeconds: number
  /**
   * Commits of submodules by their path. Such a directory is not read, and counts as git's entry of a submodule in
   * `sha1`; `sha256` is then the id of no tree.
   */
  readonly submodules?: ReadonlyMap<string, string>
}

const MODE = { file: '100644', executable: '100755', link: '120000', tree: '40000', submodule: '160000' } as const
const chunkBytes = 1024 * 1024

type Ids = { readonly sha1: Uint8Array; readonly sha256: Uint8Array }
type TreeEntry = { readonly mode: (typeof MODE)[keyof typeof MODE]; readonly name: Buffer; readonly ids: Ids }

/** SourceFailure for files that git cannot hold, links that lead out, and exceeded limits. */
export async function hashTree(root: string, bounds: TreeBounds): Promise<SourceTree> {
  const counts = { files: 0, entries: 0, bytes: 0 }
  const directories = new Map<string, string>()
  const lfsPointers: string[] = []
  const real = await fs.promises.realpath(root)

  const blobOfFile = async (path: string, shown: string): Promise<Ids> => {
    const file = await fs.promises.open(path, fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW)
    try {
      const { size } = await file.stat()
      counts.bytes += size
      refuseUnless(counts.bytes <= bounds.bytesMax, () => `source: more than ${bounds.bytesMax} bytes`)
      const hashes = begin('blob', size)
      const chunk = new Uint8Array(Math.min(chunkBytes, Math.max(size, 1)))
      let readBytes = 0
      for (;;) {
        const { bytesRead } = await file.read(chunk, 0, chunk.length, null)
        if (bytesRead === 0) break
        if (bytesRead === size && isLfsPointer(chunk.subarray(0, size))) lfsPointers.push(path.slice(root.length + 1))
        readBytes += bytesRead
        for (const hash of hashes) hash.update(chunk.subarray(0, bytesRead))
      }
      if (readBytes !== size) throw new Error(`source: ${shown} changes while it is read`)
      return end(hashes)
    } finally {
      await file.close()
    }
  }

  const entryOf = async (dir: Buffer, name: Buffer, depth: number): Promise<TreeEntry | null> => {
    counts.entries += 1
    refuseUnless(
      counts.entries <= bounds.entriesMax,
      () => `source: more than ${bounds.entriesMax} files and directories`,
    )
    const path = Buffer.concat([dir, Buffer.from('/'), name])
    const shown = showName(path.subarray(Buffer.byteLength(root) + 1))
    refuseUnless(name.length <= componentBytesMax, () => `source: ${shown}: too long a name`)
    refuseUnless(name.equals(Buffer.from(name.toString('utf8'))), () => `source: ${shown}: a name that is not UTF-8`)
    refuseUnless(!/\p{Cc}/u.test(name.toString('utf8')), () => `source: ${shown}: a control character in a name`)
    const stat = await fs.promises.lstat(path)
    if (stat.isDirectory()) {
      const commit = bounds.submodules?.get(path.subarray(Buffer.byteLength(root) + 1).toString('utf8'))
      if (commit !== undefined) {
        const sha1 = Buffer.from(commit, 'hex')
        return { mode: MODE.submodule, name, ids: { sha1, sha256: new Uint8Array(32) } }
      }
      refuseUnless(depth < depthMax, () => `source: ${shown}: deeper than ${depthMax} directories`)
      const ids = await treeOf(path, depth + 1)
      if (ids !== null) return { mode: MODE.tree, name, ids }
      await fs.promises.rmdir(path)
      return null
    }
    counts.files += 1
    await fs.promises.lutimes(path, bounds.timeSeconds, bounds.timeSeconds)
    if (stat.isSymbolicLink()) {
      const target = await fs.promises.readlink(path, { encoding: 'buffer' })
      await checkLink({ path: path.toString('utf8'), target: target.toString('utf8'), shown, root: real })
      const hashes = begin('blob', target.length)
      for (const hash of hashes) hash.update(target)
      return { mode: MODE.link, name, ids: end(hashes) }
    }
    refuseUnless(stat.isFile(), () => `source: ${shown}: neither file, directory nor link`)
    const mode = (stat.mode & 0o100) === 0 ? MODE.file : MODE.executable
    return { mode, name, ids: await blobOfFile(path.toString('utf8'), shown) }
  }

  /** Null for no file in it. */
  const treeOf = async (dir: Buffer, depth: number): Promise<Ids | null> => {
    const entries: TreeEntry[] = []
    // Names as bytes: one that is not UTF-8 must be seen, not repaired.
    for (const name of await fs.promises.readdir(dir, { encoding: 'buffer' })) {
      const entry = await entryOf(dir, name, depth)
      if (entry !== null) entries.push(entry)
    }
    await fs.promises.utimes(dir, bounds.timeSeconds, bounds.timeSeconds)
    if (entries.length === 0) return null
    const ids = treeIds(entries)
    directories.set(dir.subarray(Buffer.byteLength(root) + 1).toString('utf8'), toHex(ids.sha256))
    return ids
  }

  const ids = await treeOf(Buffer.from(root), 0)
  refuseUnless(ids !== null, () => 'source: there is no file in it')
  const [sha1, sha256] = [toHex(ids.sha1), toHex(ids.sha256)]
  return { sha1, sha256, fileCount: counts.files, sizeBytes: counts.bytes, directories, lfsPointers }
}

/** Names sorted as bytes, a directory's as if `/` ended it (tree.c, base_name_compare). */
function treeIds(entries: readonly TreeEntry[]): Ids {
  const keyOf = ({ mode, name }: TreeEntry) => (mode === MODE.tree ? Buffer.concat([name, Buffer.from('/')]) : name)
  const sorted = [...entries].sort((a, b) => Buffer.compare(keyOf(a), keyOf(b)))
  const contentOf = (format: keyof Ids) =>
    concat(...sorted.flatMap(({ mode, name, ids }) => [utf8(`${mode} `), name, Uint8Array.of(0), ids[format]]))
  const idOf = (format: keyof Ids) => {
    const content = contentOf(format)
    return createHash(format).update(`tree ${content.length}\0`).update(content).digest()
  }
  return { sha1: idOf('sha1'), sha256: idOf('sha256') }
}

function begin(type: 'blob', sizeBytes: number): readonly [Hash, Hash] {
  const header = `${type} ${sizeBytes}\0`
  return [createHash('sha1').update(header), createHash('sha256').update(header)]
}

function end([sha1, sha256]: readonly [Hash, Hash]): Ids {
  return { sha1: sha1.digest(), sha256: sha256.digest() }
}

type Link = { readonly path: string; readonly target: string; readonly shown: string; readonly root: string }

/** Resolved in the real tree, links on the way included; a missing target counts as inside. */
async function checkLink({ path, target, shown, root }: Link): Promise<void> {
  const problem = linkTargetProblem(target)
  refuseUnless(problem === null, () => `source: ${shown}: ${problem}`)
  const parent = await fs.promises.realpath(path.slice(0, path.lastIndexOf('/')))
  const isInside = (place: string) => place === root || place.startsWith(`${root}/`)
  let at = parent
  for (const component of target.split('/')) {
    if (component === '' || component === '.') continue
    const next = component === '..' ? at.slice(0, at.lastIndexOf('/')) : `${at}/${component}`
    at = await fs.promises.realpath(next).catch(() => next)
    refuseUnless(isInside(at), () => `source: ${shown}: a link that leads out of the source`)
  }
}
