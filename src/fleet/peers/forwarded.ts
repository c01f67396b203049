// Converts a request and its response for forwarding, without connection fields (RFC 9110, section 7.6.1). No effects
// except reading a body.

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

/** Fields with which a client proves its identity. The call names the client; the proof never reaches another host. */
const SECRETS = ['authorization', 'cookie', 'x-api-key'] as const

export function requestHeaders(headers: Headers): Headers {
  const passed = withoutConnection(headers)
  for (const name of [peerField, ...SECRETS]) passed.delete(name)
  // The runtime's default would request encodings that the client may not support.
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

/** Returns the same response. Calls `end` once, when the body has been read completely, fails, or is abandoned. */
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
