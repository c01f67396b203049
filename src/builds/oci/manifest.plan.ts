// A boot image as an OCI artifact (image-spec v1.1, "Guidelines for Artifact Usage"): an empty config, and one layer
// per file with its name as title. Pure.

import { utf8 } from '../../base/bytes.ts'

export const MEDIA_TYPES = {
  manifest: 'application/vnd.oci.image.manifest.v1+json',
  index: 'application/vnd.oci.image.index.v1+json',
  empty: 'application/vnd.oci.empty.v1+json',
  file: 'application/octet-stream',
  envelope: 'application/vnd.dsse.envelope.v1+json',
} as const

/** Our own media type for the whole image. */
export const artifactType = 'application/vnd.strongroom.boot-image.v1'

const titleAnnotation = 'org.opencontainers.image.title'

/** The empty descriptor of the specification: its blob is these two bytes. */
export const emptyBlob = utf8('{}')
export const emptyDigest = 'sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'

export type BootFile = {
  /** Name within the image's directory. */
  readonly name: string
  /** `sha256:` and hexadecimal. */
  readonly digest: string
  readonly sizeBytes: number
}

/** Returns the exact bytes of the manifest, in the order of the files. */
export function bootManifest(files: readonly BootFile[]): Uint8Array {
  const empty = { mediaType: MEDIA_TYPES.empty, digest: emptyDigest, size: emptyBlob.length, data: 'e30=' }
  return utf8(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MEDIA_TYPES.manifest,
      artifactType,
      config: empty,
      layers: files.map(({ name, digest, sizeBytes }) => ({
        mediaType: MEDIA_TYPES.file,
        digest,
        size: sizeBytes,
        annotations: { [titleAnnotation]: name },
      })),
    }),
  )
}
