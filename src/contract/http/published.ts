// The operator's files for clients, at one public address of service A. Pure. They come from the host, so they prove
// nothing: a client compares them with the transparency log, or its user with another channel.

import { OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'

export const publishedPath = '/.well-known/strongroom'
export const publishedFormat = 'strongroom/published/v1'
/** Three manifests of a few KiB, a key and a certificate. */
export const publishedBytesMax = 1024 * 1024

const Manifest = (image: string) =>
  OrNull(Type.String({ maxLength: 262_144 }), {
    description: `manifest.json of the image \`${image}\`, byte for byte; null if this appliance has none.`,
  })

/** Clients ignore fields of later versions. */
export const PublishedFiles = Type.Object({
  format: Type.Literal(publishedFormat),
  ca: OrNull(Type.String({ maxLength: 65_536 }), {
    description: "PEM of the appliance's own authority; null if the operator's certificate is served.",
  }),
  operator_key: Type.String({ maxLength: 8_192, description: 'PEM of the public operator key.' }),
  images: Type.Object({
    instance: Manifest('instance'),
    inference: Manifest('inference'),
    builder: Manifest('builder'),
  }),
})
export type PublishedFiles = Static<typeof PublishedFiles>
