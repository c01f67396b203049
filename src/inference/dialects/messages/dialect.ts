// The Messages API over chat completions. Pure.

import type { Dialect } from '../../openai/dialect.ts'
import { chatOfMessages, MESSAGES_NAMES } from './request.ts'
import { errorDocument, wholeMessage } from './response.ts'
import { MessagesStream } from './stream.ts'

export const messagesDialect: Dialect = {
  translate: (body, names) => ({ ...chatOfMessages(body, names), traits: null }),
  respond: (_traits, head) => ({
    whole: (completion, usage) => wholeMessage(completion, usage, head),
    openStream: options => new MessagesStream(head, options),
  }),
  names: MESSAGES_NAMES,
  errorDocument,
  keyHeader: 'x-api-key',
  idHeader: 'request-id',
}
