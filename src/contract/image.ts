// Manifest of a built guest image, as `manifest.json` beside its files. Pure. Written by scripts/build-image.ts.

import { type Static, Type } from '@sinclair/typebox'

const Sha256 = Type.String({ pattern: '^[0-9a-f]{64}$' })
const ImageFile = Type.Object({
  path: Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$', description: 'Name within the image directory.' }),
  sha256: Sha256,
  sizeBytes: Type.Integer({ minimum: 1 }),
})

/** What the appliance needs of a manifest; further fields (tools, locks, verity parameters) serve those who rebuild it. */
export const ImageManifest = Type.Object({
  schemaVersion: Type.Literal(1),
  name: Type.String({ pattern: '^[a-z][a-z0-9-]{0,31}$' }),
  inputsSha256: Sha256,
  rootHash: Type.String({ pattern: '^[0-9a-f]{64}$', description: 'dm-verity root hash, SHA-256.' }),
  files: Type.Object({
    firmware: ImageFile,
    root: ImageFile,
    kernel: ImageFile,
    initrd: ImageFile,
    cmdline: ImageFile,
  }),
  agent: Type.Object({ name: Type.String(), version: Type.String() }),
  kernelVersion: Type.String(),
})
export type ImageManifest = Static<typeof ImageManifest>
