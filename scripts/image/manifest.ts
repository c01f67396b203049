// manifest.json: what an image is, by digest. Anyone can build again and compare. Pure but for reading the parts.

import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { sha256File } from './digest.ts'

const closed = { additionalProperties: false } as const
const Sha256 = Type.String({ pattern: '^[0-9a-f]{64}$' })

const ImageFile = Type.Object(
  {
    /** Relative to the manifest. */
    path: Type.String(),
    sha256: Sha256,
    sizeBytes: Type.Integer({ minimum: 1 }),
  },
  closed,
)

/** The parts of an image and their names, in the order in which a machine takes them. */
export const partNames = {
  firmware: 'firmware.fd',
  kernel: 'kernel',
  initrd: 'initrd',
  cmdline: 'cmdline',
  root: 'root.img',
} as const

/** Origin of an executable of ours; null for one that scripts/build-*.ts did not make. */
const Origin = Type.Union([
  Type.Object({ bunSha256: Sha256, lockSha256: Sha256, sourceSha256: Sha256 }, closed),
  Type.Null(),
])
export type Origin = Static<typeof Origin>

const common = {
  schemaVersion: Type.Literal(1),
  name: Type.String(),
  inputsSha256: Sha256,
  rootHash: Sha256,
  verity: Type.Object(
    {
      salt: Sha256,
      uuid: Type.String(),
      dataBlocks: Type.Integer({ minimum: 1 }),
      /** Bytes. */
      hashOffset: Type.Integer({ minimum: 4096 }),
      hashStartBlock: Type.Integer({ minimum: 2 }),
    },
    closed,
  ),
  files: Type.Object(
    { firmware: ImageFile, root: ImageFile, kernel: ImageFile, initrd: ImageFile, cmdline: ImageFile },
    closed,
  ),
  kernelVersion: Type.String(),
  sourceDateEpoch: Type.Integer(),
  packagesLockSha256: Sha256,
  tools: Type.Record(Type.String(), Type.String()),
  firmwareVersion: Type.String(),
  /** Launch digests on SEV-SNP, hexadecimal, by `<profile>/<vehicle>/<vCPU type>/<vCPUs>`. */
  launchDigests: Type.Record(Type.String(), Type.String()),
} as const

const CommonManifest = Type.Object(common, closed)
export type CommonManifest = Static<typeof CommonManifest>

export const MachineManifest = Type.Object(
  {
    ...common,
    agent: Type.Optional(Type.Object({ name: Type.String(), version: Type.String() }, closed)),
    guestSha256: Sha256,
    guestProvenance: Origin,
  },
  closed,
)
export type MachineManifest = Static<typeof MachineManifest>

export const EnclaveManifest = Type.Object(
  {
    ...common,
    /** The worker's package. */
    program: Type.Object({ package: Type.String(), version: Type.String() }, closed),
    /** strongroom-enclave as it runs in the VM. */
    gateway: Type.Object(
      { sha256: Sha256, command: Type.Array(Type.String(), { minItems: 1 }), provenance: Origin },
      closed,
    ),
  },
  closed,
)
export type EnclaveManifest = Static<typeof EnclaveManifest>

/** Digests and sizes of the parts in `dir`. */
export async function measureFiles(dir: string): Promise<CommonManifest['files']> {
  const measure = (part: keyof typeof partNames) => measurePart(dir, part)
  return {
    firmware: await measure('firmware'),
    root: await measure('root'),
    kernel: await measure('kernel'),
    initrd: await measure('initrd'),
    cmdline: await measure('cmdline'),
  }
}

async function measurePart(dir: string, part: keyof typeof partNames): Promise<Static<typeof ImageFile>> {
  const path = join(dir, partNames[part])
  return { path: partNames[part], sha256: await sha256File(path), sizeBytes: (await stat(path)).size }
}
