// The model file of the built-in worker and the SHA-256 of its bytes. Effects: reads the file in pieces, between other
// work.
//
// The digest is valid while the file's identity stays the same: device, inode, size, and the times of last write and
// change. Undetected changes: writes to the block device below, and a write of the same size within one tick of the
// file system's clock (milliseconds).

import { statSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { Fault } from '../../base/fault.ts'
import { fileIdentity } from '../../linux/files.ts'

export type Model = {
  /** SHA-256. */
  readonly digest: Uint8Array
  /** Throws Fault host.command_failed unless the path still has the file that was read. */
  readonly checkUnchanged: () => void
}

export type ReadModel = (signal: AbortSignal) => Promise<Model>

/**
 * Reads the whole file, and again only after its identity has changed. Rejects if the signal is aborted. Faults:
 * config.file (no such file, not a file), host.command_failed (it changed while it was read).
 */
export function createModelReader(path: string): ReadModel {
  let last: { readonly identity: string; readonly digest: Uint8Array } | null = null
  return async signal => {
    checkModelFile(path)
    await using file = await open(path, 'r')
    const status = await file.stat({ bigint: true })
    const identity = fileIdentity(status)
    const checkUnchanged = () => {
      // Follows a link, as the mount does.
      const now = statSync(path, { bigint: true, throwIfNoEntry: false })
      if (now === undefined || fileIdentity(now) !== identity) throw changed(path)
    }
    const digest = last?.identity === identity ? last.digest : await sha256(file, status.size, signal)
    if (digest === null) throw changed(path)
    checkUnchanged()
    last = { identity, digest }
    return { digest, checkUnchanged }
  }
}

/** Checks that there is a file. Throws Fault config.file. */
export function checkModelFile(path: string): void {
  const status = statSync(path, { throwIfNoEntry: false })
  if (status?.isFile()) return
  const found = status === undefined ? 'no such file' : 'not a file'
  throw new Fault('config.file', `model ${path}: ${found}`, { param: 'inference.worker.model_file' })
}

function changed(path: string): Fault {
  return new Fault('host.command_failed', `model ${path}: the file has changed`)
}

/** Hashing one piece blocks this thread for a fraction of a millisecond. */
const pieceBytes = 262_144

type Readable = Pick<Awaited<ReturnType<typeof open>>, 'read'>

/**
 * Hashes the file; null if it has more bytes than `sizeBytes`, because a file that grows without end must not keep this
 * process reading.
 */
async function sha256(file: Readable, sizeBytes: bigint, signal: AbortSignal): Promise<Uint8Array | null> {
  const hasher = new Bun.CryptoHasher('sha256')
  const piece = Buffer.alloc(pieceBytes)
  for (let at = 0; at <= sizeBytes; ) {
    signal.throwIfAborted()
    const { bytesRead } = await file.read(piece, 0, pieceBytes, at)
    if (bytesRead === 0) return new Uint8Array(hasher.digest())
    hasher.update(piece.subarray(0, bytesRead))
    at += bytesRead
  }
  return null
}
