// Translates another API's request and checks it by the parser of chat requests. Pure. Fault invalid_request, with the
// client's field.

import type { Fault } from '../../base/fault.ts'
import { invalidRequest } from '../json-text.ts'
import { checkRequest, type ParsedRequest, readSource } from '../openai/request.ts'
import type { ApiShape, ShapedRequest } from '../openai/shape.ts'
import { namesOf, renamedFault } from './fields.ts'
import { unmarkedJson, withMarkedNumbers } from './long-numbers.ts'

export type ParsedShape = ParsedRequest & Pick<ShapedRequest, 'ignored' | 'respond'>

export function parseShaped(shape: ApiShape, bytes: Uint8Array): ParsedShape {
  const { body, text: given } = readSource(bytes)
  const { chat, ignored, respond } = shape.translate(body, null)
  try {
    const request = checkRequest('chat', chat)
    const marked = withMarkedNumbers(given, tooManyNumbers)
    const text = marked === null ? JSON.stringify(chat) : unmarkedJson(shape.translate(JSON.parse(marked), null).chat)
    return { request, source: { text, body: chat, sizeBytes: Buffer.byteLength(text) }, ignored, respond }
  } catch (error) {
    const names = namesOf(shape.names)
    shape.translate(body, names)
    throw renamedFault(error, names)
  }
}

function tooManyNumbers(): Fault {
  return invalidRequest('The body has too many whole numbers of 16 digits or more; send them as texts.')
}
