// Manifest of the `inference` image, as `manifest.json` beside its root. Pure. Written by scripts/build-image.ts.

import { type Static, Type } from '@sinclair/typebox'

const Sha256 = Type.String({ pattern: '^[0-9a-f]{64}$' })

/** What the appliance needs; further fields (tools, locks) serve those who rebuild it. */
export const WorkerImageManifest = Type.Object({
  schemaVersion: Type.Literal(1),
  name: Type.Literal('inference'),
  rootHash: Type.String({ pattern: '^[0-9a-f]{64}$', description: 'dm-verity root hash, SHA-256.' }),
  verity: Type.Object({ hashOffset: Type.Integer({ minimum: 4096, description: 'Bytes.' }) }),
  files: Type.Object({
    root: Type.Object({
      path: Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$' }),
      sha256: Sha256,
      sizeBytes: Type.Integer({ minimum: 1 }),
    }),
  }),
  program: Type.Object({ package: Type.String(), version: Type.String() }),
})
export type WorkerImageManifest = Static<typeof WorkerImageManifest>
