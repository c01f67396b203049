// GET /v1/responses/{id}: a stored response, as the client received it; and the input items of its request. Effects:
// the memory of responses.

import { Fault } from '../../base/fault.ts'
import { itemIdOf, responseIn } from '../dialects/responses/earlier.ts'
import { invalidField, type JsonObject } from '../json-text.ts'
import { digestOf, type ResponseMemory, readKept, type Sender } from './response-memory.ts'

/**
 * Returns the response without `previous_response_id`, which is not kept. Null if the key has no such response, or if
 * its request was encrypted: the host can read the path of a request, and the response would reveal the conversation.
 */
export async function retrieveResponse(memory: ResponseMemory, id: string, by: Sender): Promise<JsonObject | null> {
  const found = await findShown(memory, id, by)
  if (found === null) return null
  const { own, kept } = found
  const { tags, ...shown } = found.shown
  const output = kept.output.map((item, at) => ({
    id: itemIdOf(Array.isArray(tags) ? tags[at] : '', own, at),
    ...item,
  }))
  return { id, ...shown, output }
}

async function findShown(memory: ResponseMemory, id: string, by: Sender) {
  const own = responseIn(id)
  const text = own === null ? null : await memory.find(digestOf(own), by)
  const kept = text === null ? null : await readKept(text)
  return own === null || kept === null || kept.shown === null ? null : { own, kept, shown: kept.shown }
}

/** Part of a list of items. `after`: id of the item before the first; null to start at the beginning. */
type InputPage = { readonly limit: number; readonly isAscending: boolean; readonly after: string | null }

const pageDefault = 20
const pageLargest = 100

/** Reads `limit`, `order` and `after` with OpenAI's defaults. Fault invalid_request. */
export function inputPageOf({ url }: Pick<Request, 'url'>): InputPage {
  const query = queryOf(url)
  const limit = query.get('limit') ?? String(pageDefault)
  if (!/^[0-9]{1,3}$/.test(limit) || Number(limit) < 1 || Number(limit) > pageLargest) {
    throw invalidField('limit', `must be a number from 1 to ${pageLargest}.`)
  }
  const order = query.get('order') ?? 'desc'
  if (order !== 'asc' && order !== 'desc') throw invalidField('order', 'must be asc or desc.')
  return { limit: Number(limit), isAscending: order === 'asc', after: query.get('after') }
}

/**
 * Returns a page of the items that the request of the response had in `input`; those of earlier responses have their
 * own lists. Null as for `retrieveResponse`, and if the items were too long to store. Fault invalid_request if
 * `after` names no item of the list.
 */
export async function inputItems(
  memory: ResponseMemory,
  id: string,
  { page, by }: { readonly page: InputPage; readonly by: Sender },
): Promise<JsonObject | null> {
  const found = await findShown(memory, id, by)
  if (found === null || found.kept.input === null) return null
  // Not a tag of an output item, so that item_reference cannot match it. Items are stored without ids.
  const items = found.kept.input.map(
    (item, at): JsonObject => ({ id: itemIdOf('input', found.own, at), type: 'message', ...item }),
  )
  if (!page.isAscending) items.reverse()
  const from = page.after === null ? 0 : items.findIndex(item => item.id === page.after) + 1
  if (page.after !== null && from === 0) throw invalidField('after', 'must be the id of an item of this list.')
  const data = items.slice(from, from + page.limit)
  return {
    object: 'list',
    data,
    first_id: data.at(0)?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: from + data.length < items.length,
  }
}

function queryOf(url: string): URLSearchParams {
  const [, query = ''] = /\?([^#]*)/.exec(url) ?? []
  return new URLSearchParams(query)
}

/** Throws Fault invalid_request if a stream is requested: the response has ended, and its events are not kept. */
export function refuseStream({ url }: Pick<Request, 'url'>): void {
  if ((queryOf(url).get('stream') ?? 'false') === 'false') return
  throw invalidField('stream', 'must be false: the gateway stores the response, not its events.')
}

/** Returns Fault not_found, also for a response of another key. */
export function noKeptResponse(): Fault {
  return new Fault(
    'not_found',
    'No response with that id is stored for this key. Responses are stored for minutes (inference.responses_kept_s), and never with store: false. Responses to encrypted requests cannot be retrieved.',
  )
}
