// A request of another API, translated and judged by the parser of chat requests. Pure. Fault invalid_request, with the client's field.

import { checkRequest, type ParsedRequest, readSource } from '../openai/request.ts'
import type { ApiShape, ShapedRequest } from '../openai/shape.ts'
import { namesOf, renamedFault } from './fields.ts'

export type ParsedShape = ParsedRequest & Pick<ShapedRequest, 'ignored' | 'respond'>

export function parseShaped(shape: ApiShape, bytes: Uint8Array): ParsedShape {
  const { body } = readSource(bytes)
  const { chat, ignored, respond } = shape.translate(body, null)
  try {
    const request = checkRequest('chat', chat)
    const text = JSON.stringify(chat)
    return { request, source: { text, body: chat, sizeBytes: Buffer.byteLength(text) }, ignored, respond }
  } catch (error) {
    const names = namesOf(shape.names)
    shape.translate(body, names)
    throw renamedFault(error, names)
  }
}
