// Served boot images: their files with digests, computed once per version of a file. Effects: reads files.

import { createReadStream } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { imageProvenanceName } from '../../attest/provenance/image.ts'
import { Fault } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import { checkValue } from '../../contract/check.ts'
import { ImageManifest } from '../../contract/vm/image.ts'
import { fileIdentity } from '../../linux/files.ts'
import { type BootFile, bootManifest } from './manifest.plan.ts'

export type ServedImage = {
  /** Digest of the manifest: `sha256:` and hexadecimal. */
  readonly digest: string
  readonly manifest: Uint8Array
  readonly files: readonly (BootFile & { readonly path: string })[]
  readonly hasIgvm: boolean
}

export type BootImages = {
  readonly names: readonly string[]
  /**
   * Opens an image; null for an unknown name. Hashes changed files again first. Fault internal if the image's files are
   * unreadable.
   */
  readonly open: (name: string) => Promise<ServedImage | null>
}

const igvmPattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,58}\.igvm$/
/** No share: limits the operator's image. */
const igvmCountMax = 16
const manifestBytesMax = 1024 * 1024

/**
 * `directories`: output of scripts/build-image.ts, by the names under which they are served. Reads nothing until
 * requested.
 */
export function createBootImages(directories: ReadonlyMap<string, string>): BootImages {
  const digests = new FileDigests()
  return {
    names: [...directories.keys()],
    open: async name => {
      const directory = directories.get(name)
      if (directory === undefined) return null
      try {
        return await openImage(directory, digests)
      } catch (cause) {
        throw new Fault('internal', `boot image ${directory}: it cannot be read`, { cause })
      }
    },
  }
}

async function openImage(directory: string, digests: FileDigests): Promise<ServedImage> {
  const names = await fileNames(directory)
  const files = await Promise.all(
    names.map(async name => ({ name, path: join(directory, name), ...(await digests.of(join(directory, name))) })),
  )
  const manifest = bootManifest(files)
  const hex = new Bun.CryptoHasher('sha256').update(manifest).digest('hex')
  return { digest: `sha256:${hex}`, manifest, files, hasIgvm: names.some(name => igvmPattern.test(name)) }
}

/**
 * Returns the manifest first, then the provenance if there is one, the files that the manifest names, and IGVM files
 * beside them.
 */
async function fileNames(directory: string): Promise<string[]> {
  const path = join(directory, 'manifest.json')
  const { size } = await stat(path)
  if (size > manifestBytesMax) throw new Error(`manifest.json has ${size} bytes`)
  const result = checkValue(
    ImageManifest,
    parseJson(await Bun.file(path).bytes(), { depthMax: 8, what: 'manifest.json' }),
  )
  if (!result.ok) throw new Error(`manifest.json: ${result.problem}`)
  const { firmware, kernel, initrd, cmdline, root } = result.value.files
  const igvm = (await readdir(directory)).filter(name => igvmPattern.test(name)).toSorted()
  const named = [cmdline, firmware, kernel, initrd, root].map(file => file.path)
  const provenance = (await Bun.file(join(directory, imageProvenanceName)).exists()) ? [imageProvenanceName] : []
  return [...new Set(['manifest.json', ...provenance, ...named, ...igvm.slice(0, igvmCountMax)])]
}

type Digest = { readonly digest: string; readonly sizeBytes: number }
type CachedImage = { readonly state: string; readonly digest: Promise<Digest> }

/** Digests by path, valid while the file is unchanged. Concurrent callers share one read. */
class FileDigests {
  readonly #known = new Map<string, CachedImage>()

  async of(path: string): Promise<Digest> {
    const state = fileIdentity(await stat(path, { bigint: true }))
    const known = this.#known.get(path)
    if (known?.state === state) return await known.digest
    const digest = hashFile(path)
    this.#known.set(path, { state, digest })
    // A failed read is retried by the next caller.
    digest.catch(() => this.#known.delete(path))
    return await digest
  }
}

async function hashFile(path: string): Promise<Digest> {
  const hasher = new Bun.CryptoHasher('sha256')
  let sizeBytes = 0
  for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 })) {
    hasher.update(chunk)
    sizeBytes += chunk.length
  }
  return { digest: `sha256:${hasher.digest('hex')}`, sizeBytes }
}
