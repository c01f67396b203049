// An engine that answers every recorded request of an agent with the same sentence.

import { type Behaviour, chunk, delta, openSse, sendJson, sse, USAGE } from '../gateway/upstream-server.ts'

export const spokenAnswer = 'Here it is.'

/** Says one sentence, in the form of the request. */
export const speaks: Behaviour = (response, { path, body }) => {
  const isChat = path.endsWith('/chat/completions')
  if (body.stream !== true) {
    const message = { role: 'assistant', content: spokenAnswer }
    return sendJson(response, 200, { choices: [{ index: 0, message, finish_reason: 'stop' }], usage: USAGE })
  }
  openSse(response)
  for (const text of ['Here ', 'it is.']) {
    response.write(sse(isChat ? delta({ content: text }) : chunk([{ index: 0, text, finish_reason: null }])))
  }
  response.write(sse(isChat ? delta({}, 'stop') : chunk([{ index: 0, text: '', finish_reason: 'stop' }])))
  response.end(`${sse(chunk([], { usage: USAGE }))}data: [DONE]\n\n`)
}
