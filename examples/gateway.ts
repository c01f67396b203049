// The gateway as the examples find it in the environment. Reads the environment and the files that it names.
//
//   STRONGROOM_GATEWAY         https://inference.DOMAIN:8442
//   STRONGROOM_GATEWAY_KEY     a gateway key, gw_…
//   STRONGROOM_GATEWAY_POLICY  file: strongroom verify policy-example --image IMAGE --operator-key KEY > gateway.json
//   STRONGROOM_CA              file: the operator's ca.pem; leave it out if the certificate is by a public authority
//   STRONGROOM_MODEL           a model's id; without it the first that the key may use
//   STRONGROOM_OUTSIDE         upstreams outside of the measured VM that you accept, NAME=ORIGIN, separated by commas
//   STRONGROOM_SIMULATED_ROOT  file: for development, the root of a simulated platform

import { readFileSync } from 'node:fs'
import { type AttestedFetch, attestedFetch } from '@strongroom/verifier'

export type Gateway = {
  readonly url: string
  readonly apiKey: string
  /** Verifies the gateway before it sends anything, and encrypts every body to the attested key. */
  readonly fetch: AttestedFetch
}

export function gatewayFromEnvironment(): Gateway {
  const url = required('STRONGROOM_GATEWAY')
  const [ca, simulatedRoot] = [fileText('STRONGROOM_CA'), fileText('STRONGROOM_SIMULATED_ROOT')]
  const fetch = attestedFetch({
    url,
    policy: readFileSync(required('STRONGROOM_GATEWAY_POLICY'), 'utf8'),
    outside: (process.env.STRONGROOM_OUTSIDE ?? '').split(',').filter(name => name !== ''),
    ...(ca === undefined ? {} : { ca }),
    ...(simulatedRoot === undefined ? {} : { simulatedRoot }),
  })
  return { url, apiKey: required('STRONGROOM_GATEWAY_KEY'), fetch }
}

/** The chosen model, or the first of GET /v1/models. */
export async function modelFrom({ url, apiKey, fetch }: Gateway): Promise<string> {
  const chosen = process.env.STRONGROOM_MODEL
  if (chosen !== undefined && chosen !== '') return chosen
  const response = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${apiKey}` } })
  const { data } = (await response.json()) as { data?: { id: string }[] }
  const id = data?.[0]?.id
  if (id === undefined) throw new Error(`no model to use (status ${response.status}): set STRONGROOM_MODEL`)
  return id
}

function required(name: string): string {
  const value = process.env[name]
  if (value === undefined || value === '') throw new Error(`set ${name}: see examples/gateway.ts`)
  return value
}

function fileText(name: string): string | undefined {
  const path = process.env[name]
  return path === undefined || path === '' ? undefined : readFileSync(path, 'utf8')
}
