// The worker's root on this host: checks all bytes of the image against its root hash, then unpacks it. Effects: files,
// fsck.erofs.
//
// Unpacked again at each start of this process into a directory that only root can write, because earlier content is
// not trusted.

import { chmodSync, readFileSync, statSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { verityRoot } from '../../attest/verity/root.ts'
import { toHex } from '../../base/bytes.ts'
import { Fault, messageOf, wrapFault } from '../../base/fault.ts'
import { checkedJson } from '../../contract/check.ts'
import { WorkerImageManifest } from '../../contract/vm/image.ts'
import { run } from '../../linux/command.ts'
import { removeTree } from '../../linux/files/removal.ts'
import { ensureDir } from '../../linux/files.ts'

/** Reads the image's manifest. Throws Fault image.invalid if it is missing or does not match the schema. */
export function readWorkerImage(imageDir: string): WorkerImageManifest {
  const path = `${imageDir}/manifest.json`
  let bytes: Uint8Array
  try {
    bytes = readFileSync(path)
  } catch (error) {
    throw wrapFault(error, 'read the manifest of the inference image', 'image.invalid')
  }
  return checkedJson(WorkerImageManifest, bytes, { what: path, code: 'image.invalid' })
}

export type WorkerRoot = {
  /** The unpacked directory. */
  readonly path: string
  /** dm-verity root hash of the bytes that were unpacked. */
  readonly digest: Uint8Array
}

export type WorkerRootOptions = { readonly imageDir: string; readonly target: string; readonly timeoutMs: number }

/** Unpacks at the first call. After a failure the next call tries again. */
export function createWorkerRoot(options: WorkerRootOptions): () => Promise<WorkerRoot> {
  let root: WorkerRoot | null = null
  return async () => {
    root ??= { path: options.target, digest: await unpackWorkerRoot(options) }
    return root
  }
}

/**
 * Checks the image and unpacks it to `target`, creating its parent directory. Returns the root hash computed from the
 * bytes. Throws Fault image.invalid if the bytes do not match the manifest; host.command_failed, host.command_timeout.
 */
async function unpackWorkerRoot({ imageDir, target, timeoutMs }: WorkerRootOptions): Promise<Uint8Array> {
  const manifest = readWorkerImage(imageDir)
  const path = `${imageDir}/${manifest.files.root.path}`
  const sizeBytes = statSync(path, { throwIfNoEntry: false })?.size
  if (sizeBytes !== manifest.files.root.sizeBytes) {
    throw new Fault(
      'image.invalid',
      `${path}: ${sizeBytes ?? 'no such file'}; the manifest lists ${manifest.files.root.sizeBytes} bytes`,
    )
  }
  const rootHash = await rootHashOf(path, manifest.verity.hashOffset)
  if (toHex(rootHash) !== manifest.rootHash) {
    throw new Fault(
      'image.invalid',
      `${path}: its root hash is ${toHex(rootHash)}, the manifest lists ${manifest.rootHash}`,
    )
  }
  ensureDir(dirname(target), { mode: 0o711 })
  removeTree(target)
  await run(['fsck.erofs', `--extract=${target}`, '--preserve', path], { timeoutMs, outputBytesMax: 65_536 })
  // The worker's user must be able to enter it; fsck.erofs creates the top directory with our umask.
  chmodSync(target, 0o755)
  return rootHash
}

async function rootHashOf(path: string, hashOffset: number): Promise<Uint8Array> {
  await using file = await open(path, 'r')
  const read = async (offset: number, length: number) => {
    const bytes = new Uint8Array(length)
    const { bytesRead } = await file.read(bytes, 0, length, offset)
    return bytes.subarray(0, bytesRead)
  }
  const hash = (bytes: Uint8Array) => new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))
  try {
    return (await verityRoot({ data: { read }, hashOffset }, { hash })).rootHash
  } catch (error) {
    throw new Fault('image.invalid', `${path}: ${messageOf(error)}`, { cause: error })
  }
}
