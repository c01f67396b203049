// A client of the gateway that encrypts by our own codec: sends one request and opens its response. Effects: requests.

import { Value } from '@sinclair/typebox/value'
import { bindingOf } from '../../../src/attest/ehbp/binding.ts'
import {
  type EhbpSuite,
  type ResponseLimits,
  type SealedRequest,
  SealingSession,
} from '../../../src/attest/ehbp/client.ts'
import { sealRequest } from '../../../src/attest/ehbp/seal-request.ts'
import { encapsulate } from '../../../src/attest/receipt/encapsulate-portable.ts'
import type { AgreementKeys } from '../../../src/attest/receipt/kem.ts'
import { fromHex, utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { GatewayError } from '../../../src/contract/http/inference.ts'
import { chatBody, KEY } from './server.ts'
import type { AnyGateway } from './test-gateway.ts'

export type EncryptedInit = {
  readonly suite?: EhbpSuite
  /** Default: the gateway's. */
  readonly keys?: AgreementKeys
  readonly headers?: Record<string, string>
  readonly signal?: AbortSignal
  /** Replaces the sealed body. */
  readonly change?: (sealed: Uint8Array) => Uint8Array | ReadableStream<Uint8Array>
  readonly key?: string
  /** Binds the body to the request, as the project's own client does; needs a gateway that attests. */
  readonly epoch?: string
}

export type EncryptedResponse = {
  readonly request: SealedRequest
  readonly response: Response
  /** Every plain header of the response, and the sealed ones in the clear. */
  readonly headers: Headers
  /** The plain body; rejects when it is cut or changed. */
  readonly text: () => Promise<string>
  /** The plain bytes of each piece as it arrives. */
  readonly pieces: () => AsyncGenerator<string>
}

type Server = Pick<AnyGateway, 'url' | 'publicKeys'>

export async function postEncrypted(
  gateway: Server,
  path: string,
  body: unknown,
  init: EncryptedInit = {},
): Promise<EncryptedResponse> {
  const { suite = 'x25519', headers = {}, change = bytes => bytes, key = KEY } = init
  const keys = init.keys ?? (await gateway.publicKeys())
  const plain = body instanceof Uint8Array ? body : utf8(typeof body === 'string' ? body : JSON.stringify(body))
  const options = { keys, suite, random: systemRandom, encapsulate }
  const bound = { method: 'POST', target: path, headers: new Headers({ authorization: `Bearer ${key}` }) }
  const epoch = fromHex(init.epoch ?? '')
  const request =
    init.epoch === undefined || epoch === null
      ? await sealRequest(options, plain)
      : await (await SealingSession.open(options)).seal(plain, { binding: bindingOf(bound), epoch })
  const response = await fetch(gateway.url + path, {
    method: 'POST',
    body: change(request.body) as Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...request.headers, ...headers },
    ...(init.signal === undefined ? {} : { signal: init.signal }),
  })
  return await openEncrypted(request, response)
}

export async function openEncrypted(
  request: SealedRequest,
  response: Response,
  limits?: ResponseLimits,
): Promise<EncryptedResponse> {
  const opener = await request.openResponse(response, limits)
  const headers = new Headers(response.headers)
  for (const [name, value] of Object.entries(opener.headers)) headers.set(name, value)
  async function* pieces() {
    const decoder = new TextDecoder()
    for await (const bytes of response.body ?? []) yield decoder.decode(await opener.push(bytes), { stream: true })
    opener.finish()
  }
  const all = async () => {
    let text = ''
    for await (const piece of pieces()) text += piece
    return text
  }
  return { request, response, headers, text: all, pieces }
}

export function chatEncrypted(gateway: Server, more: Record<string, unknown> = {}, init: EncryptedInit = {}) {
  return postEncrypted(gateway, '/v1/chat/completions', chatBody(more), init)
}

/** The error document of a response. */
export async function errorOf(response: EncryptedResponse): Promise<GatewayError['error']> {
  return Value.Decode(GatewayError, JSON.parse(await response.text())).error
}

/** A chat whose body was sealed before, or never; the response as it comes. */
export async function postSealed({ url }: Server, headers: Record<string, string>, body: Uint8Array) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    body: Uint8Array.from(body),
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', ...headers },
  })
  return { response, text: await response.text() }
}
