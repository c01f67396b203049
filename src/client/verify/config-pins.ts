// Operator key and gateway image of client.toml, as pins of a policy that leaves them open. Effects: reads files. Fault
// invalid_request.

import { type Policy, strictPolicy } from '../../attest/policy/policy.ts'
import { present } from '../../base/assert.ts'
import { fromHex } from '../../base/bytes.ts'
import type { ExpectedImage } from '../../verifier/launch.ts'
import type { ClientDefaults } from '../client-config.ts'
import { operatorKeyDigest } from '../trust/operator-key-digest.ts'
import { readImage } from './image-option.ts'

/** Returns the launch digests of the image's manifest; `any` without an image. */
export function measurementsOf(image: ExpectedImage | 'any'): Policy['measurements'] {
  if (image === 'any') return 'any'
  return [...new Set(Object.values(image.launchDigests))].map(text => present(fromHex(text), 'hexadecimal'))
}

/** Adds the operator key of client.toml to a policy that names none. */
export async function withOperatorKey(policy: Policy, { operator_key: key }: ClientDefaults): Promise<Policy> {
  if (key === undefined || policy.idKeyDigest !== 'any') return policy
  return { ...policy, idKeyDigest: await operatorKeyDigest(key) }
}

/** Adds image and operator key of client.toml to a gateway policy without them; `any` if nothing is named. */
export async function withGatewayImage(policy: Policy | 'any', defaults: ClientDefaults): Promise<Policy | 'any'> {
  const { gateway_image: path } = defaults
  if (path === undefined) return policy === 'any' ? 'any' : await withOperatorKey(policy, defaults)
  const base = policy === 'any' ? strictPolicy() : policy
  const measurements = base.measurements === 'any' ? measurementsOf(await readImage(path)) : base.measurements
  return await withOperatorKey({ ...base, measurements }, defaults)
}
