// Translates another API's request and checks it by the parser of chat requests. Pure. Fault invalid_request, with the
// client's field.

import type { Fault } from '../../base/fault.ts'
import { invalidRequest, type JsonObject } from '../json-text.ts'
import type { Dialect, DialectRequest } from '../openai/dialect.ts'
import { checkRequest, type ParsedRequest, readSource } from '../openai/request.ts'
import { namesOf, renamedFault } from './fields.ts'
import { unmarkedJson, withMarkedNumbers } from './long-numbers.ts'

/** `given`: the client's own body. */
export type ParsedDialect = ParsedRequest & Pick<DialectRequest, 'ignored' | 'respond'> & { readonly given: JsonObject }

export function parseDialect(dialect: Dialect, bytes: Uint8Array): ParsedDialect {
  const { body, text: given } = readSource(bytes)
  const { chat, ignored, respond } = dialect.translate(body, null)
  try {
    const request = checkRequest('chat', chat)
    const marked = withMarkedNumbers(given, tooManyNumbers)
    const text = marked === null ? JSON.stringify(chat) : unmarkedJson(dialect.translate(JSON.parse(marked), null).chat)
    const source = { text, body: chat, sizeBytes: Buffer.byteLength(text) }
    return { request, source, given: body, ignored, respond }
  } catch (error) {
    const names = namesOf(dialect.names)
    dialect.translate(body, names)
    throw renamedFault(error, names)
  }
}

function tooManyNumbers(): Fault {
  return invalidRequest('The body has too many whole numbers of 16 digits or more; send them as texts.')
}
