// An ACME server that answers what a test wants, over real HTTPS: a fake at the outermost edge. It checks no signature
// and no proof, which Pebble does (pebble.ts); it is for what no honest server says.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { systemRandom } from '../../../src/base/ids.ts'
import { openAuthority } from '../../../src/http/authority.ts'

/** `payload`: text of the signed message (RFC 8555 6.2), empty without one. */
export type ReceivedRequest = { readonly method: string; readonly path: string; readonly payload: string }

/** By path; instead of the honest answer. */
export type Answers = Record<string, (honest: () => Response) => Response | Promise<Response>>

export type HostileServer = {
  readonly url: string
  readonly caFile: string
  readonly asked: ReceivedRequest[]
  answers: Answers
} & AsyncDisposable

/** `name`: the only one that it issues for; `chain`: what it issues. */
export async function startHostileServer(
  directory: string,
  { name, chain }: { readonly name: string; readonly chain: string },
): Promise<HostileServer> {
  const stateDir = join(directory, 'hostile')
  const deps = { kind: 'clients', stateDir, nowMs: Date.now, random: systemRandom } as const
  const authority = await openAuthority({ ...deps, names: ['localhost'] })
  const { cert, key } = await authority.issue(['localhost'], 1)
  const asked: ReceivedRequest[] = []
  let nonces = 0
  const json = (body: unknown, more: Record<string, string> = {}, status = 200) => {
    nonces += 1
    return Response.json(body, { status, headers: { 'Replay-Nonce': `n${nonces}`, ...more } })
  }
  const honest = (path: string): Response => {
    switch (path) {
      case '/dir':
        return json({ newNonce: `${url}/nonce`, newAccount: `${url}/account`, newOrder: `${url}/order` })
      case '/nonce':
        return json({})
      case '/account':
        return json({ status: 'valid' }, { Location: `${url}/account/1` }, 201)
      case '/order':
        return json(order('pending'), { Location: `${url}/order/1` }, 201)
      case '/authorization':
        return json({
          status: 'pending',
          identifier: { type: 'dns', value: name },
          challenges: [{ type: 'http-01', url: `${url}/challenge`, token: 'a-token', status: 'pending' }],
        })
      case '/challenge':
        return json({ type: 'http-01', url: `${url}/challenge`, token: 'a-token', status: 'valid' })
      case '/finalize':
      case '/order/1':
        return json(order('valid'))
      case '/certificate':
        return new Response(chain, { headers: { 'Replay-Nonce': 'last' } })
      default:
        return json({ type: 'urn:ietf:params:acme:error:malformed', detail: path }, {}, 404)
    }
  }
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    development: false,
    tls: { cert, key },
    fetch: async request => {
      const { pathname } = new URL(request.url)
      const { payload = '' } = request.method === 'POST' ? ((await request.json()) as { payload?: string }) : {}
      const text = Buffer.from(payload, 'base64url').toString()
      asked.push({ method: request.method, path: pathname, payload: text })
      return self.answers[pathname]?.(() => honest(pathname)) ?? honest(pathname)
    },
  })
  const url = `https://localhost:${server.port}`
  const order = (status: string) => ({
    status,
    identifiers: [{ type: 'dns', value: name }],
    authorizations: [`${url}/authorization`],
    finalize: `${url}/finalize`,
    certificate: `${url}/certificate`,
  })
  const caFile = join(directory, 'hostile.pem')
  writeFileSync(caFile, authority.caPem)
  const self: HostileServer = {
    url: `${url}/dir`,
    caFile,
    asked,
    answers: {},
    [Symbol.asyncDispose]: () => server.stop(true),
  }
  return self
}
