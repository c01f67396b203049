// Unpacks the verified files of a result, under plain names, into a new directory. Effects: writes files.

import { createHash } from 'node:crypto'
import { createReadStream, existsSync, constants as fsConstants, mkdirSync, renameSync, rmSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { createGunzip } from 'node:zlib'
import { wellFormed } from '../../attest/malformed.ts'
import { isComponent } from '../../attest/provenance/paths.ts'
import { messageOf, systemErrorCode } from '../../base/fault.ts'
import { MIB, readingInput } from '../../terminal/input-file.ts'
import { totalBytesMax } from '../verify/build/result-source.ts'
import { readResultTar, type TarFile } from '../verify/build/result-tar.ts'

const filesMax = 20_000
const depthMax = 20
/** Error codes for a name that another entry already uses. */
const CLASHES: ReadonlySet<string> = new Set(['EEXIST', 'ENOTDIR', 'EISDIR'])

export type UnpackOrder = {
  readonly output: string
  readonly jobId: string
  /**
   * SHA-256 of each verified file, by its path below the top-level directory. The archive must hold exactly these
   * files.
   */
  readonly digests: ReadonlyMap<string, string>
}

/**
 * Unpacks into a new directory below `output`, and returns it. It is named after the project, with the job's id
 * appended if that name is taken. Throws Fault invalid_request and leaves no files if it fails.
 */
export function unpackResult(archive: string, { output, jobId, digests }: UnpackOrder): Promise<string> {
  const temporary = join(output, `.${jobId}.unpacking`)
  return readingInput(archive, async () => {
    rmSync(temporary, { recursive: true, force: true })
    mkdirSync(temporary, { recursive: true })
    try {
      const top = await writeAll(archive, temporary, digests)
      const wanted = join(output, top)
      const target = existsSync(wanted) ? `${wanted}-${jobId.slice(0, 8)}` : wanted
      renameSync(join(temporary, top), target)
      return target
    } finally {
      rmSync(temporary, { recursive: true, force: true })
    }
  })
}

/** Writes all files, and returns the name of the only top-level directory. Throws Malformed. */
async function writeAll(archive: string, root: string, digests: ReadonlyMap<string, string>): Promise<string> {
  const file = createReadStream(archive, { highWaterMark: MIB })
  const gunzip = createGunzip({ chunkSize: 256 * 1024 })
  file.on('error', error => gunzip.destroy(error))
  let top: string | null = null
  let count = 0
  try {
    for await (const entry of readResultTar(file.pipe(gunzip), { bytesMax: totalBytesMax })) {
      const components = entry.path.replace(/^(?:\.\/)+/, '').split('/')
      const [first = ''] = components
      count += 1
      wellFormed(count <= filesMax, `archive: more than ${filesMax} files`)
      wellFormed(
        components.length > 1 && components.length <= depthMax && components.every(isComponent),
        `archive: the name ${JSON.stringify(entry.path)} leaves its directory, or is not of plain ASCII`,
      )
      top ??= first
      wellFormed(top === first, 'archive: more than one top-level directory')
      const inner = components.slice(1).join('/')
      const sha256 = await writeFile(join(root, ...components), entry).catch(error => {
        const isTaken = CLASHES.has(systemErrorCode(error) ?? '')
        wellFormed(!isTaken, `archive: ${JSON.stringify(inner)} stands in it twice, or as a file and a directory`)
        throw error
      })
      wellFormed(digests.get(inner) === sha256, `archive: ${JSON.stringify(inner)} is not the file that was verified`)
    }
  } catch (error) {
    // zlib's error: the archive is damaged, truncated, or not gzip.
    wellFormed(systemErrorCode(error)?.startsWith('Z_') !== true, `archive: ${messageOf(error)}: it is damaged`)
    throw error
  } finally {
    gunzip.destroy()
    file.destroy()
  }
  wellFormed(top !== null, 'archive: it is empty')
  wellFormed(count === digests.size, `archive: ${count} files, and ${digests.size} were verified`)
  return top
}

/** Writes a file and returns the SHA-256 of what was written. */
async function writeFile(path: string, { content, isExecutable }: TarFile): Promise<string> {
  mkdirSync(dirname(path), { recursive: true })
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = fsConstants
  const handle = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, isExecutable ? 0o755 : 0o644)
  const hash = createHash('sha256')
  try {
    for await (const part of content) {
      hash.update(part)
      for (let at = 0; at < part.length; ) at += (await handle.write(part, at, part.length - at)).bytesWritten
    }
  } finally {
    await handle.close()
  }
  return hash.digest('hex')
}
