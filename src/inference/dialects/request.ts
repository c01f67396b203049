// Translates another API's request and checks it by the parser of chat requests. Pure. Fault invalid_request, with the
// client's field.

import type { Fault } from '../../base/fault.ts'
import { invalidRequest, type JsonObject } from '../json-text.ts'
import type { Dialect, DialectRequest, Earlier } from '../openai/dialect.ts'
import { Repairs } from '../openai/repairs.ts'
import { changesWith, checkRequest, type ParsedRequest, type RequestSource } from '../openai/request.ts'
import { namesOf, renamedFault } from './fields.ts'
import { unmarkedJson, withMarkedNumbers } from './long-numbers.ts'

/** `given`: the client's own body. */
export type ParsedDialect = ParsedRequest & Pick<DialectRequest, 'ignored' | 'traits'> & { readonly given: JsonObject }

/** Translates and checks a request. `earlier`: earlier responses that the request builds on. */
export function parseDialect(
  dialect: Pick<Dialect, 'translate' | 'names'>,
  client: RequestSource,
  earlier?: Earlier,
): ParsedDialect {
  const { body, text: given } = client
  const { chat, ignored, traits } = dialect.translate(body, null, earlier)
  try {
    const repairs = new Repairs()
    const checked = checkRequest('chat', chat, repairs)
    const request = checked.reasoning === null ? checked : ({ ...checked, reasoning: 'translation' } as const)
    const text = withMarks(dialect, given, earlier) ?? JSON.stringify(chat)
    const changes = changesWith(client, repairs)
    const source = { text, body: chat, sizeBytes: Buffer.byteLength(text), changes }
    return { request, source, given: body, ignored, traits }
  } catch (error) {
    const names = namesOf(dialect.names)
    dialect.translate(body, names, earlier)
    throw renamedFault(error, names)
  }
}

/** Returns the chat request's text if it has numbers that are too long for a double; null otherwise. */
function withMarks(dialect: Pick<Dialect, 'translate'>, given: string, earlier: Earlier | undefined): string | null {
  const marked = withMarkedNumbers(given, tooManyNumbers)
  if (marked === null) return null
  const { chat } = dialect.translate(JSON.parse(marked), null, earlier)
  // Applies the same changes as to the request that was checked.
  checkRequest('chat', chat)
  return unmarkedJson(chat)
}

function tooManyNumbers(): Fault {
  return invalidRequest('The body has too many integers of 16 digits or more; send them as strings.')
}
