// Reads the result of a build from a directory, or from the downloaded or repacked archive. Effects: reads files;
// writes none. Throws InputFault: an unreadable result gets no verdict.

import { constants, createReadStream, type Dirent } from 'node:fs'
import { type FileHandle, open, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { createGunzip } from 'node:zlib'
import { wellFormed } from '../../../attest/malformed.ts'
import { imageManifestName } from '../../../attest/provenance/image.ts'
import { isComponent, RESULT_PATHS } from '../../../attest/provenance/paths.ts'
import { Fault, messageOf } from '../../../base/fault.ts'
import { looksLikeTar, tarBlockBytes } from '../../../base/ustar.codec.ts'
import { InputFault } from '../../../terminal/exit.ts'
import { MIB, readingInput, unreadable } from '../../../terminal/input-file.ts'
import type { ResultFiles } from '../../../verifier/build/question.ts'
import { readResultTar } from './result-tar.ts'

/** Size limit of files that are kept in memory; a log is only hashed. */
const documentBytesMax = 16 * MIB
/** Limit on bytes in memory: an archive may repeat such names in many directories. */
const keptBytesMax = 64 * MIB
const fileCountMax = 20_000
const depthMax = 20
/** Limit on the unpacked size, including headers. Artifacts may be large, but not this large. */
export const totalBytesMax = 32 * 1024 * MIB

const param = 'project'

export async function readResult(path: string): Promise<ResultFiles> {
  const found = await stat(path).catch((error: unknown) => {
    throw unreadable({ path, param: 'file' }, error)
  })
  const files = await readingInput(path, async () => {
    if (found.isDirectory()) return await readDirectory(path)
    wellFormed(found.isFile(), 'it is neither a directory nor an archive')
    return await readArchive(path)
  })
  const result = files.result()
  if (result.digests.has(imageManifestName) && !result.digests.has(RESULT_PATHS.evidence)) {
    throw new InputFault(`${path}: it is a boot image, not the result of a build`, {
      param,
      remedy: "name the result's directory or archive, and this one with --image",
    })
  }
  if (result.digests.has(RESULT_PATHS.provenance) || result.digests.has(RESULT_PATHS.evidence)) return result
  throw new InputFault(`${path}: neither ${RESULT_PATHS.provenance} nor ${RESULT_PATHS.evidence} is in it`, {
    param,
    remedy: "name the result's directory, or its tar.gz as it was downloaded",
  })
}

/** Collects files one by one. Throws Malformed. */
class ResultCollector {
  readonly #documents = new Map<string, Uint8Array>()
  readonly #digests = new Map<string, string>()
  #totalBytes = 0
  #keptBytes = 0

  async add(path: string, sizeBytes: number, content: AsyncIterable<Uint8Array>): Promise<void> {
    const shown = JSON.stringify(path)
    wellFormed(this.#digests.size < fileCountMax, `more than ${fileCountMax} files`)
    const components = path.split('/')
    wellFormed(
      components.length <= depthMax && components.every(isComponent),
      `the name ${shown} leaves the archive, or is not of plain ASCII`,
    )
    wellFormed(!this.#digests.has(path), `${shown} stands twice in it`)
    this.#totalBytes += sizeBytes
    wellFormed(this.#totalBytes <= totalBytesMax, `more than ${totalBytesMax} bytes`)
    const isDocument = documentPattern.test(path) && sizeBytes <= documentBytesMax
    wellFormed(
      isDocument || !documentPattern.test(path) || path.startsWith(artifacts),
      `${shown}: ${sizeBytes} bytes, at most ${documentBytesMax}`,
    )
    if (isDocument) this.#keptBytes += sizeBytes
    wellFormed(this.#keptBytes <= keptBytesMax, `more than ${keptBytesMax} bytes of documents`)
    const hasher = new Bun.CryptoHasher('sha256')
    const parts: Uint8Array[] = []
    let readBytes = 0
    for await (const part of content) {
      hasher.update(part)
      readBytes += part.length
      wellFormed(readBytes <= sizeBytes, `${shown} grew while it was read`)
      if (isDocument) parts.push(part.slice())
    }
    this.#digests.set(path, hasher.digest('hex'))
    if (isDocument) this.#documents.set(path, Buffer.concat(parts))
  }

  /** Returns the files, without the single top-level directory if there is one. */
  result(): ResultFiles {
    const paths = [...this.#digests.keys()]
    const [top = ''] = (paths[0] ?? '').split('/')
    const isWrapped = !this.#digests.has(RESULT_PATHS.provenance) && paths.every(path => path.startsWith(`${top}/`))
    const inner = (path: string) => (isWrapped ? path.slice(top.length + 1) : path)
    const renamed = <T>(map: ReadonlyMap<string, T>) => new Map([...map].map(([path, value]) => [inner(path), value]))
    return { documents: renamed(this.#documents), digests: renamed(this.#digests) }
  }
}

const artifacts = `${RESULT_PATHS.artifacts}/`

/** Matches documents in the root, or in the single top-level directory, whose name is known only at the end. */
const documentPattern = new RegExp(
  `^(?:[^/]+/)?(?:${Object.values(RESULT_PATHS)
    .filter(path => path !== RESULT_PATHS.artifacts && path !== RESULT_PATHS.log)
    .map(path => path.replaceAll('.', '\\.'))
    .join('|')})$`,
)

async function readDirectory(root: string): Promise<ResultCollector> {
  const collected = new ResultCollector()
  const pending = ['']
  for (let dir = pending.pop(); dir !== undefined; dir = pending.pop()) {
    const entries: Dirent[] = await readdir(join(root, dir), { withFileTypes: true })
    for (const entry of entries) {
      const path = dir === '' ? entry.name : `${dir}/${entry.name}`
      wellFormed(path.split('/').length <= depthMax, `${JSON.stringify(path)} is nested too deeply`)
      if (entry.isDirectory()) {
        pending.push(path)
        wellFormed(pending.length <= fileCountMax, `more than ${fileCountMax} directories`)
        continue
      }
      wellFormed(entry.isFile(), `${JSON.stringify(path)} is neither a file nor a directory`)
      await addFile(collected, root, path)
    }
  }
  return collected
}

async function addFile(collected: ResultCollector, root: string, path: string): Promise<void> {
  const file = join(root, path)
  try {
    await using handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW)
    const { size } = await handle.stat()
    await collected.add(path, size, partsOf(handle, size))
  } catch (error) {
    if (error instanceof Fault || (error as { code?: unknown }).code === undefined) throw error
    throw unreadable({ path: file, param: 'file' }, error)
  }
}

/**
 * Yields a file's bytes in parts, each valid until the next one. Avoids a stream and a large buffer: most files are
 * small, a buffer is zeroed before reading, and setting up a stream takes longer than reading most files.
 */
async function* partsOf(handle: FileHandle, sizeBytes: number): AsyncGenerator<Uint8Array> {
  const buffer = new Uint8Array(Math.min(sizeBytes + 1, MIB))
  for (;;) {
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, null)
    if (bytesRead === 0) return
    yield buffer.subarray(0, bytesRead)
  }
}

async function readArchive(path: string): Promise<ResultCollector> {
  const collected = new ResultCollector()
  const file = createReadStream(path, { highWaterMark: MIB })
  try {
    const packed = await isGzip(path)
    const gunzip = packed ? createGunzip({ chunkSize: 256 * 1024 }) : null
    // pipe() does not propagate errors.
    if (gunzip !== null) file.on('error', error => gunzip.destroy(error))
    const bytes: AsyncIterable<Uint8Array> = gunzip === null ? file : file.pipe(gunzip)
    try {
      for await (const entry of readResultTar(bytes, { bytesMax: totalBytesMax })) {
        await collected.add(entry.path.replace(/^(?:\.\/)+/, ''), entry.sizeBytes, entry.content)
      }
    } catch (error) {
      // zlib's error: the archive is damaged or truncated.
      const code = (error as { code?: unknown }).code
      wellFormed(typeof code !== 'string' || !code.startsWith('Z_'), `archive: ${messageOf(error)}: it is damaged`)
      throw error
    } finally {
      gunzip?.destroy()
    }
  } finally {
    file.destroy()
  }
  return collected
}

async function isGzip(path: string): Promise<boolean> {
  const handle = await open(path, 'r')
  try {
    const head = Buffer.alloc(tarBlockBytes)
    await handle.read(head, 0, head.length, 0)
    if (head[0] === 0x1f && head[1] === 0x8b) return true
    wellFormed(looksLikeTar(head), 'it is neither a tar.gz nor a tar')
    return false
  } finally {
    await handle.close()
  }
}
