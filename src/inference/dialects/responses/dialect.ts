// The Responses API over chat completions. Pure.

import type { Dialect } from '../../openai/dialect.ts'
import { chatOfResponse, RESPONSE_NAMES } from './request.ts'
import { wholeResponse } from './response.ts'
import { ResponsesStream } from './stream.ts'

export const responsesDialect: Dialect = {
  translate: (body, names, earlier) => {
    const { chat, ignored, respond } = chatOfResponse(body, names, earlier)
    return {
      chat,
      ignored,
      respond: head => {
        const form = respond(head)
        return {
          whole: (completion, usage) => JSON.stringify(wholeResponse(completion, usage, form)),
          openStream: options => new ResponsesStream(form, options),
        }
      },
    }
  },
  names: RESPONSE_NAMES,
  errorDocument: error => error,
  keyHeader: null,
  idHeader: null,
}
