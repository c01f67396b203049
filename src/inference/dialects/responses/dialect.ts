// The Responses API over chat completions. Pure.

import { present } from '../../../base/assert.ts'
import type { Dialect } from '../../openai/dialect.ts'
import { asCompaction } from './compaction.ts'
import { chatOfResponse, RESPONSE_NAMES, responseForm } from './request.ts'
import { compactionResponse, wholeResponse } from './response.ts'
import { ResponsesStream } from './stream.ts'

export const responsesDialect: Dialect = {
  translate: chatOfResponse,
  respond: (traits, head) => {
    const form = responseForm(present(traits, 'traits of a response'), head)
    return {
      whole: (completion, usage) => JSON.stringify(wholeResponse(completion, usage, form)),
      openStream: options => new ResponsesStream(form, options),
    }
  },
  names: RESPONSE_NAMES,
  errorDocument: error => error,
  keyHeader: null,
  idHeader: null,
}

/** The endpoint for compactions. Its responses have fewer fields and are never streams. */
export const compactDialect: Dialect = {
  ...responsesDialect,
  translate: (body, names, earlier) => chatOfResponse(asCompaction(body), names, earlier),
  respond: (traits, head) => {
    const form = responseForm(present(traits, 'traits of a compaction'), head)
    return {
      ...responsesDialect.respond(traits, head),
      whole: (completion, usage) => JSON.stringify(compactionResponse(wholeResponse(completion, usage, form))),
    }
  },
}
