// The launch document: the boot inputs of a VM as text. A report attests it by HOST_DATA, its SHA-256. Pure.

import { OneOf } from '../check.ts'
import { Closed, Sha256, Sha384 } from '../forms.ts'
import { type Static, Type } from '../type.ts'

export const launchFormat = 'strongroom/launch/v1'

/** In the order in which the canonical text has them. */
export const LaunchDocument = Closed({
  format: Type.Literal(launchFormat),
  image: Closed({
    name: Type.String({ pattern: '^[a-z][a-z0-9-]{0,31}$' }),
    rootHash: Sha256,
    /** Digest of everything that the image was built from, as in its manifest. */
    inputsSha256: Sha256,
  }),
  /** `ovmf`: firmware that checks kernel hashes; `igvm`: an IGVM file, whose digest stands for the firmware. */
  vehicle: OneOf(['ovmf', 'igvm']),
  firmwareSha256: Sha256,
  kernelSha256: Sha256,
  initrdSha256: Sha256,
  cmdlineSha256: Sha256,
  vcpus: Type.Integer({ minimum: 1, maximum: 255 }),
  vcpuType: Type.String({ maxLength: 32 }),
  memoryMib: Type.Integer({ minimum: 1 }),
  /** Guest policy (AMD 56860, section 4.3). */
  policy: Type.String({ pattern: '^0x[0-9a-f]{1,16}$' }),
  /** The launch digest that all of this has to give. */
  measurement: Sha384,
})
export type LaunchDocument = Static<typeof LaunchDocument>

/** The canonical text: JSON without white space, fields in the order of the schema. */
export function launchText(document: LaunchDocument): string {
  const { image, ...rest } = LaunchDocument.properties
  const entries = ['format', 'image', ...Object.keys(rest).filter(key => key !== 'format')].map(key => {
    const value: unknown = Reflect.get(document, key)
    if (key !== 'image') return [key, value]
    return [
      key,
      Object.fromEntries(Object.keys(image.properties).map(name => [name, Reflect.get(document.image, name)])),
    ]
  })
  return JSON.stringify(Object.fromEntries(entries))
}
