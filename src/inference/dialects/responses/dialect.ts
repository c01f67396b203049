// The Responses API over chat completions. Pure.

import { present } from '../../../base/assert.ts'
import type { Dialect } from '../../openai/dialect.ts'
import { chatOfResponse, RESPONSE_NAMES, responseForm } from './request.ts'
import { wholeResponse } from './response.ts'
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
