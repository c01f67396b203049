// The Responses API over chat completions. Pure.

import type { Dialect } from '../../openai/dialect.ts'
import { chatOfResponse, RESPONSE_NAMES } from './request.ts'
import { wholeResponse } from './response.ts'
import { ResponsesStream } from './stream.ts'

export const responsesDialect: Dialect = {
  translate: (body, names) => {
    const { chat, ignored, echo } = chatOfResponse(body, names)
    return {
      chat,
      ignored,
      respond: head => ({
        whole: (completion, usage) => JSON.stringify(wholeResponse(completion, usage, { head, echo })),
        openStream: options => new ResponsesStream(head, echo, options),
      }),
    }
  },
  names: RESPONSE_NAMES,
  errorDocument: error => error,
  keyHeader: null,
}
