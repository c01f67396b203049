// A request and its answer, as they stand once they are passed on: without the fields of one connection (RFC 9110,
// section 7.6.1). No effects but those of reading a body.

import { peerField } from './call.codec.ts'

const OF_CONNECTION = [
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
] as const

/** Fields by which a client proves its identity. The call names the client; no other host gets the proof. */
const SECRETS = ['authorization', 'cookie', 'x-api-key'] as const

export function requestHeaders(headers: Headers): Headers {
  const passed = withoutConnection(headers)
  for (const name of [peerField, ...SECRETS]) passed.delete(name)
  // The runtime's own would ask for encodings that the client may not read.
  if (!passed.has('accept-encoding')) passed.set('accept-encoding', 'identity')
  return passed
}

export function responseHeaders(headers: Headers): Headers {
  return withoutConnection(headers)
}

function withoutConnection(headers: Headers): Headers {
  const passed = new Headers(headers)
  const named = (headers.get('connection') ?? '').split(',').map(name => name.trim().toLowerCase())
  for (const name of [...OF_CONNECTION, ...named]) if (/^[a-z0-9-]+$/.test(name)) passed.delete(name)
  return passed
}

/** The same answer. `end` is called once, when the body was read completely, fails, or is abandoned. */
export function untilEnd(answer: Response, headers: Headers, end: () => void): Response {
  const { status, body } = answer
  if (body === null) {
    end()
    return new Response(null, { status, headers })
  }
  const reader = body.getReader()
  const passed = new ReadableStream<Uint8Array>({
    pull: async controller => {
      try {
        const { done, value } = await reader.read()
        if (!done) return controller.enqueue(value)
        end()
        controller.close()
      } catch (error) {
        end()
        controller.error(error)
      }
    },
    cancel: async reason => {
      end()
      await reader.cancel(reason)
    },
  })
  return new Response(passed, { status, headers })
}
