// A stand-in for service A that serves attestations of instances over HTTPS. Effects: a free port, files in the
// caller's directory.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fromBase64Url } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { clientFiles, makeInstanceAttestation, type WantedAttestation } from './instance-attestation.ts'

export type InstanceApi = AsyncDisposable & {
  readonly url: string
  /** Paths and Authorization fields of all requests. */
  readonly requests: { readonly path: string; readonly authorization: string | null }[]
  /** Content of the next attestations. */
  wanted: WantedAttestation
  /** Answers in place of an attestation, where it is set. */
  answer: (() => Response | Promise<Response>) | null
  /** Options of a client that trusts it and expects the samples, without the address. */
  readonly options: readonly string[]
  readonly caFile: string
}

export const sampleApiKey = 'ca_abcdefgh_0123456789abcdefgh'

/** `names`: of the certificate. */
export async function startInstanceApi(
  directory: string,
  names: readonly string[] = ['127.0.0.1'],
): Promise<InstanceApi> {
  const file = (name: string, text: string) => {
    const path = join(directory, name)
    writeFileSync(path, text)
    return path
  }
  const deps = { kind: 'clients' as const, stateDir: directory, nowMs: systemClock.nowMs, random: systemRandom }
  const authority = await openAuthority({ ...deps, names: ['localhost', 'other.example'] })
  const pair = await authority.issue([...names], 1)
  const caFile = file('ca.pem', authority.caPem)
  const { root, policy, gatewayPolicy } = await clientFiles()
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: pair,
    fetch: async request => {
      const { pathname, search, searchParams } = new URL(request.url)
      api.requests.push({ path: pathname + search, authorization: request.headers.get('authorization') })
      if (api.answer !== null) return await api.answer()
      const nonce = fromBase64Url(searchParams.get('nonce') ?? '') ?? new Uint8Array(32)
      const data = await makeInstanceAttestation({ nonce, nowMs: systemClock.nowMs(), ...api.wanted })
      return Response.json({ request_id: `req_${'a'.repeat(24)}`, correlation_id: null, data })
    },
  })
  const api: InstanceApi = {
    url: `https://127.0.0.1:${server.port}`,
    requests: [],
    wanted: {},
    answer: null,
    options: [
      ...['--ca', caFile, '--policy', file('policy.json', policy)],
      ...['--gateway-policy', file('gateway-policy.json', gatewayPolicy)],
      ...['--trust-simulated-root', file('root.pem', root), '--key-file', file('key.txt', `${sampleApiKey}\n`)],
    ],
    caFile,
    [Symbol.asyncDispose]: async () => {
      await server.stop(true)
    },
  }
  return api
}
