// A hostile host at the file of a running VM's scratch disk: finds what the guest has just written, alters it, moves
// it, restores older blocks. Effects: files.

import { closeSync, openSync, readSync, rmSync, writeSync } from 'node:fs'

export const blockBytes = 4096
const sliceBytes = 8 * 2 ** 20

export type ScratchFile = Disposable & {
  readonly read: (block: number) => Buffer
  readonly write: (block: number, bytes: Uint8Array) => void
  /** A copy as the file is now. */
  readonly copy: (path: string) => Promise<ScratchFile>
  /** Numbers of the blocks in which the two differ. */
  readonly changedSince: (before: ScratchFile) => readonly number[]
  /** Puts these blocks of the other file here. */
  readonly take: (from: ScratchFile, blocks: readonly number[]) => void
  readonly slice: (into: Buffer, offset: number) => number
}

export function openScratchFile(path: string, remove = false): ScratchFile {
  const fd = openSync(path, 'r+')
  const slice = (into: Buffer, offset: number) => readSync(fd, into, 0, into.length, offset)
  const self: ScratchFile = {
    slice,
    read: block => {
      const bytes = Buffer.alloc(blockBytes)
      slice(bytes, block * blockBytes)
      return bytes
    },
    write: (block, bytes) => void writeSync(fd, bytes, 0, bytes.length, block * blockBytes),
    copy: async to => {
      if ((await Bun.spawn(['cp', '--sparse=always', path, to]).exited) !== 0) throw new Error(`${path} is not copied`)
      return openScratchFile(to, true)
    },
    changedSince: before => {
      const [ours, theirs] = [Buffer.alloc(sliceBytes), Buffer.alloc(sliceBytes)]
      const changed: number[] = []
      for (let offset = 0, length = slice(ours, 0); length > 0; offset += length, length = slice(ours, offset)) {
        before.slice(theirs, offset)
        if (ours.compare(theirs, 0, length, 0, length) === 0) continue
        for (let at = 0; at < length; at += blockBytes) {
          const isSame = ours.compare(theirs, at, at + blockBytes, at, at + blockBytes) === 0
          if (!isSame) changed.push((offset + at) / blockBytes)
        }
      }
      return changed
    },
    take: (from, blocks) => {
      for (const block of blocks) self.write(block, from.read(block))
    },
    [Symbol.dispose]: () => {
      closeSync(fd)
      if (remove) rmSync(path)
    },
  }
  return self
}

/** The block in the middle of the longest run. */
export function middleOf(blocks: readonly number[]): number {
  let [best, length, begin] = [0, 0, 0]
  for (const [at, block] of blocks.entries()) {
    if (at > 0 && blocks[at - 1] !== block - 1) begin = at
    if (at - begin + 1 <= length) continue
    length = at - begin + 1
    best = begin
  }
  const found = blocks[best + Math.floor(length / 2)]
  if (found === undefined) throw new Error('nothing was written')
  return found
}
