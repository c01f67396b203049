// Files of builds: `<root>/<job id>/` has source, events.jsonl and result.tar.gz; `<root>/incoming/` has uploads.
// Effects: the file system. A file under its final name is complete: it was written as a temporary, synced and
// renamed.

import { lstatSync, readdirSync, statSync } from 'node:fs'
import { mkdir, open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { wrapFault } from '../base/fault.ts'
import { diskSpace } from '../linux/files/disk-space.ts'
import { removeFile, removeTree } from '../linux/files/removal.ts'
import { ensureDir } from '../linux/files.ts'

const FILES = {
  source: 'source',
  events: 'events.jsonl',
  result: 'result.tar.gz',
  resultPart: 'result.tar.gz.tmp',
} as const
export type BuildFile = keyof typeof FILES

const incoming = 'incoming'

export class BuildFiles {
  readonly #root: string

  /** Removes uploads that an earlier daemon left. Fault internal if the directory cannot be created. */
  constructor(root: string) {
    this.#root = root
    ensureDir(root, { mode: 0o700 })
    removeTree(join(root, incoming))
    ensureDir(join(root, incoming), { mode: 0o700 })
  }

  path(buildId: string, file: BuildFile): string {
    return join(this.#root, buildId, FILES[file])
  }

  /** Returns the path to which an arriving source is written. */
  incomingPath(name: string): string {
    return join(this.#root, incoming, name)
  }

  /**
   * Creates a build's directory if it is missing, with its source if one was sent. Asynchronous, because a disk may be
   * slow. Fault internal.
   */
  async adopt(buildId: string, upload: { readonly path: string } | null): Promise<void> {
    const directory = join(this.#root, buildId)
    try {
      await mkdir(directory, { mode: 0o700, recursive: true })
      if (upload !== null) await rename(upload.path, this.path(buildId, 'source'))
      await syncDirectory(directory)
      await syncDirectory(this.#root)
    } catch (error) {
      throw wrapFault(error, `keep the source of build ${buildId}`)
    }
  }

  /** Renames the finished part to its final name. Fault internal. */
  async finishResult(buildId: string): Promise<void> {
    try {
      await rename(this.path(buildId, 'resultPart'), this.path(buildId, 'result'))
      await syncDirectory(join(this.#root, buildId))
    } catch (error) {
      throw wrapFault(error, `keep the result of build ${buildId}`)
    }
  }

  /** Removes a file of a build. No effect if it does not exist. */
  removeFile(buildId: string, file: BuildFile): void {
    removeFile(this.path(buildId, file))
  }

  /** Removes all files of a build. No effect if they do not exist. */
  remove(buildId: string): void {
    removeTree(join(this.#root, buildId))
  }

  /** Returns the size of a build's files in bytes. */
  sizeBytes(buildId: string): number {
    return Object.values(FILES).reduce((sum, name) => sum + sizeOf(join(this.#root, buildId, name)), 0)
  }

  hasResult(buildId: string): boolean {
    return sizeOf(this.path(buildId, 'result')) > 0
  }

  /** Returns the names of directories without a record. */
  orphans(known: ReadonlySet<string>): string[] {
    return readdirSync(this.#root).filter(name => name !== incoming && !known.has(name))
  }

  freeBytes(): number {
    return diskSpace(this.#root).freeBytes
  }
}

function sizeOf(path: string): number {
  const found = lstatSync(path, { throwIfNoEntry: false })
  return found?.isFile() === true ? found.size : 0
}

/** Reports whether a file exists. */
export function fileExists(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true
}

async function syncDirectory(path: string): Promise<void> {
  await using directory = await open(path, 'r')
  await directory.sync()
}
