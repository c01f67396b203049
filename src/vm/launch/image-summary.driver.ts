// Verifies images before VMs are launched from them, and stores a signed summary of each verified one. Effects: reads
// images, one directory of ours.
//
// The operator key signs summaries and ID blocks. ID blocks have 96 bytes (AMD 56860 rev 1.58, 8.18); a summary is
// longer and begins with `DSSEv1 `, so neither can pass for the other.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ResourceDescriptor } from '../../attest/provenance/slsa.ts'
import {
  hostVerifierId,
  type ImageSummary,
  type ReadSummary,
  readSummary,
  type SummarySigner,
  signSummary,
  summaryBytes,
  summaryKeyId,
} from '../../attest/provenance/summary.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { createSerial } from '../../base/work/serial.ts'
import type { LaunchDocument } from '../../contract/vm/launch.ts'
import type { OperatorKey } from '../../host/operator-key.ts'
import { removeFile } from '../../linux/files/removal.ts'
import { ensureDir, writeFileAtomic } from '../../linux/files.ts'
import { type BuilderImage, loadBuilderImage } from './image.driver.ts'
import { sha256Hex } from './image-digest.driver.ts'
import { FileDigests, openImageFile } from './image-file.driver.ts'

export type ImageSummariesDeps = {
  /** Directory of the summaries. */
  readonly directory: string
  readonly operatorKey: Pick<OperatorKey, 'keys' | 'digest'>
  readonly clock: Pick<Clock, 'nowMs'>
  /** Version of the verifying program. */
  readonly version: string
  readonly log: Logger
}

/** An envelope's SHA-256 in hexadecimal, and its exact bytes. */
export type KeptSummary = { readonly sha256: string; readonly bytes: Uint8Array }
type CachedSummary = KeptSummary & { readonly summary: ReadSummary }

/**
 * One per image, key and release. Results name summaries by digest, so old ones are kept for a
 * while.
 * No share: summaries of the operator's images.
 */
const keptMax = 64
/** A root file system and its hash tree. */
const fileBytesMax = 64 * 1024 ** 3

export class ImageSummaries {
  readonly #deps: ImageSummariesDeps
  readonly #files: FileDigests
  readonly #turns = createSerial()
  /** Summaries, the oldest first. */
  readonly #known: CachedSummary[]
  /** Manifest digest of the last image that passed. */
  #passed: string | null = null

  /** Throws Fault internal if the directory cannot be created. */
  constructor(deps: ImageSummariesDeps) {
    this.#deps = deps
    this.#files = new FileDigests(deps.clock, { sizeBytesMax: fileBytesMax })
    ensureDir(deps.directory, { mode: 0o755 })
    this.#known = readKept(deps)
  }

  /**
   * Verifies that every file of the image in `directory` has the digest in provenance and manifest, and stores a
   * summary. Reads files that are new or have changed. Throws Fault image.invalid as loadBuilderImage does, or with the
   * name of the file that differs.
   */
  async verifyBuilder(directory: string): Promise<BuilderImage> {
    return await this.#turns.run(async () => {
      const image = loadBuilderImage(directory)
      for (const { path, sha256 } of Object.values(image.manifest.files)) {
        using file = openImageFile(join(directory, path))
        const found = await this.#files.sha256(file)
        if (found === sha256) continue
        throw new Fault(
          'image.invalid',
          `${file.path}: SHA-256 is ${found}, its manifest and provenance say ${sha256}; build or copy the image again`,
        )
      }
      await this.#summarize(image)
      this.#passed = image.manifestSha256
      return image
    })
  }

  /** Reports whether the last image that passed has this manifest SHA-256. */
  hasPassed(manifestSha256: string): boolean {
    return this.#passed === manifestSha256
  }

  /** Returns the newest summary of the image that a VM was launched from. Null if there is none. */
  ofLaunch({ image, kernelSha256, initrdSha256 }: LaunchDocument): KeptSummary | null {
    const has = (subject: readonly ResourceDescriptor[], hex: string) =>
      subject.some(({ digest }) => Object.values(digest ?? {}).includes(hex))
    const parts = [image.rootHash, kernelSha256, initrdSha256]
    return (
      this.#known.findLast(
        ({ summary }) => summary.name === image.name && parts.every(hex => has(summary.subject, hex)),
      ) ?? null
    )
  }

  /** Returns the summaries of an image name, the newest first. */
  ofImage(name: string): readonly KeptSummary[] {
    return this.#known.filter(({ summary }) => summary.name === name).toReversed()
  }

  async #summarize({ manifest, provenanceSha256, subject }: BuilderImage): Promise<void> {
    const { directory, operatorKey, clock, version, log } = this.#deps
    const signer = await signerOf(operatorKey)
    const verifierId = hostVerifierId(operatorKey.digest)
    const summary: ImageSummary = { name: manifest.name, subject, provenanceSha256, verifierId, version }
    const wanted = identityOf({ ...summary, keyId: summaryKeyId(signer.spki) })
    if (this.#known.some(({ summary }) => identityOf(summary) === wanted)) return
    const bytes = await signSummary(summaryBytes(summary, clock.nowMs()), signer)
    const sha256 = sha256Hex(bytes)
    writeFileAtomic(fileOf(directory, sha256), bytes, { mode: 0o644 })
    this.#known.push({ sha256, bytes, summary: readSummary(bytes) })
    for (const old of this.#known.splice(0, Math.max(0, this.#known.length - keptMax))) {
      removeFile(fileOf(directory, old.sha256))
    }
    log.info('an image was verified against its provenance', {
      image: manifest.name,
      provenanceSha256,
      summary: sha256,
    })
  }
}

const keptName = /^[0-9a-f]{64}\.json(?:\.tmp)?$/

function fileOf(directory: string, sha256: string): string {
  return join(directory, `${sha256}.json`)
}

/** Returns everything except the time of verification, as text. */
function identityOf(summary: Omit<ReadSummary, 'timeVerified'>): string {
  const { name, subject, provenanceSha256, verifierId, version, keyId } = summary
  return JSON.stringify([name, subject, provenanceSha256, verifierId, version, keyId])
}

async function signerOf({ keys }: Pick<OperatorKey, 'keys'>): Promise<SummarySigner> {
  return {
    spki: new Uint8Array(await crypto.subtle.exportKey('spki', keys.publicKey)),
    sign: async message =>
      new Uint8Array(
        await crypto.subtle.sign({ name: 'ECDSA', hash: 'SHA-384' }, keys.privateKey, Uint8Array.from(message)),
      ),
  }
}

/**
 * Reads the stored summaries. Removes files that are unreadable or have a wrong digest, because the image is verified
 * again anyway.
 */
function readKept({ directory, log }: Pick<ImageSummariesDeps, 'directory' | 'log'>): CachedSummary[] {
  const names = readdirSync(directory).filter(name => keptName.test(name))
  const found = names.flatMap((name): CachedSummary[] => {
    const path = join(directory, name)
    try {
      const bytes = new Uint8Array(readFileSync(path))
      const sha256 = sha256Hex(bytes)
      if (path !== fileOf(directory, sha256)) throw new Error('its name is not its SHA-256')
      return [{ sha256, bytes, summary: readSummary(bytes) }]
    } catch (error) {
      log.warn('a verification summary cannot be read and is removed', { path, reason: messageOf(error) })
      removeFile(path)
      return []
    }
  })
  return found.toSorted((a, b) => (a.summary.timeVerified < b.summary.timeVerified ? -1 : 1))
}
