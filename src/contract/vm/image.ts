// Manifests of the images that scripts/build-image.ts builds, each as `manifest.json` beside the files of its image.
// Pure. Here is what the appliance needs of them; further fields (tools, locks, build parameters) serve those who build
// an image again.

import { type Static, Type } from '../type.ts'

const Sha256 = Type.String({ pattern: '^[0-9a-f]{64}$' })
const Sha384 = Type.String({ pattern: '^[0-9a-f]{96}$' })
const RootHash = Type.String({ pattern: '^[0-9a-f]{64}$', description: 'dm-verity root hash, SHA-256.' })
const ImageFile = Type.Object({
  path: Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$', description: 'Name within the image directory.' }),
  sha256: Sha256,
  sizeBytes: Type.Integer({ minimum: 1 }),
})

/** A guest image: what a VM boots. */
export const ImageManifest = Type.Object({
  schemaVersion: Type.Literal(1),
  name: Type.String({ pattern: '^[a-z][a-z0-9-]{0,31}$' }),
  inputsSha256: Sha256,
  rootHash: RootHash,
  files: Type.Object({
    firmware: ImageFile,
    root: ImageFile,
    kernel: ImageFile,
    initrd: ImageFile,
    cmdline: ImageFile,
  }),
  /** The packaged coding agent; absent in an image without log-in. */
  agent: Type.Optional(Type.Object({ name: Type.String(), version: Type.String() })),
  /** The gateway's entry in the allowlist of the image's VM; absent if the image runs none. */
  gateway: Type.Optional(
    Type.Object({
      sha256: Sha256,
      command: Type.Array(Type.String({ minLength: 1, maxLength: 4096 }), { minItems: 1, maxItems: 256 }),
    }),
  ),
  kernelVersion: Type.String(),
  launchDigests: Type.Record(Type.String(), Sha384, {
    description:
      'MEASUREMENT on SEV-SNP, by `<profile>/<vehicle>/<vCPU type>/<vCPUs>`, as in `qemu-kvm/bios/EPYC-v4/2`.',
  }),
})
export type ImageManifest = Static<typeof ImageManifest>

/** The `inference` image for the host's own worker: its root file system alone. */
export const WorkerImageManifest = Type.Object({
  schemaVersion: Type.Literal(1),
  name: Type.Literal('inference'),
  rootHash: RootHash,
  verity: Type.Object({ hashOffset: Type.Integer({ minimum: 4096, description: 'Bytes.' }) }),
  files: Type.Object({ root: ImageFile }),
  program: Type.Object({ package: Type.String(), version: Type.String() }),
})
export type WorkerImageManifest = Static<typeof WorkerImageManifest>
