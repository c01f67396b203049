// A program that has installed the verifier's package and the official OpenAI client: it does what each line of its input says, and prints a line of JSON
// for each. Run by Bun and by Node in a project of its own (package-project.ts), and by a page (package-page.ts).

import { attestedFetch, verifyGatewayResponse } from '@strongroom/verifier'
import OpenAI from 'openai'

const messages = [{ role: 'user', content: 'the secret prompt' }]
const tools = [
  {
    type: 'function',
    function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
  },
]

/** @returns {(command: { readonly do: string } & Record<string, any>) => Promise<unknown>} what does one command and tells how it went */
export function createClient() {
  let fetch = null
  let openai = null
  const model = 'tiny'
  const commands = {
    open: ({ options, key, baseURL = `${options.url}/v1` }) => {
      fetch = attestedFetch(options)
      openai = new OpenAI({
        apiKey: key,
        baseURL,
        fetch,
        maxRetries: 0,
        dangerouslyAllowBrowser: true,
      })
      return 'open'
    },
    verify: async () => shown(await fetch.verify()),
    evidence: () => shown(fetch.evidence()),
    close: () => fetch.close(),
    models: async () => (await openai.models.list()).data.map(item => item.id),
    chat: async () => (await openai.chat.completions.create({ model, messages })).choices[0].message.content,
    stream: async () => {
      const texts = []
      for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true })) {
        texts.push(chunk.choices[0]?.delta.content ?? '')
      }
      return { text: texts.join(''), pieces: texts.length }
    },
    tools: async () => {
      const { choices } = await openai.chat.completions.create({ model, messages, tools, tool_choice: 'required' })
      return choices[0].message.tool_calls.map(call => call.function.name)
    },
    streamedTools: async () => {
      const stream = openai.chat.completions.stream({ model, messages, tools, tool_choice: 'required' })
      return (await stream.finalChatCompletion()).choices[0].message.tool_calls.map(call => call.function.name)
    },
    /** Leaves a stream after its first piece. */
    leave: async () => {
      for await (const _ of await openai.chat.completions.create({ model, messages, stream: true })) break
      return 'left'
    },
    /** The status of an error of the client's own. */
    unknownModel: async () => openai.chat.completions.create({ model: 'nope', messages }),
    /** An answer, and what its receipt says of it. */
    receipt: async ({ url, stream, key, outside }) => {
      const body = JSON.stringify({ model, messages, stream })
      const headers = {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        'x-strongroom-receipt': '1',
      }
      const response = await fetch(url, { method: 'POST', headers, body })
      const exchange = {
        request: new TextEncoder().encode(body),
        response: new Uint8Array(await response.arrayBuffer()),
        receipt: response.headers.get('x-strongroom-receipt'),
      }
      const { ok, claim, checks } = await verifyGatewayResponse(exchange, fetch.evidence().verdict, { outside })
      exchange.request[0] ^= 1
      const changed = await verifyGatewayResponse(exchange, fetch.evidence().verdict, { outside })
      const failed = checks.filter(check => check.outcome === 'fail').map(check => check.name)
      return {
        ok,
        failed,
        changed: changed.ok,
        model: claim?.model ?? null,
        requestId: response.headers.get('x-request-id') !== null,
      }
    },
    raw: async ({ url, init }) => {
      const response = await fetch(url, init)
      return { status: response.status, type: response.headers.get('content-type'), text: await response.text() }
    },
  }
  return async command => {
    try {
      return { value: (await commands[command.do](command)) ?? null }
    } catch (error) {
      return { error: told(error) }
    }
  }
}

function shown(evidence) {
  if (evidence === null) return null
  const { simulated, checks, tlsSpkiDigest } = evidence
  const hex = [...tlsSpkiDigest].map(byte => byte.toString(16).padStart(2, '0')).join('')
  return { simulated, checkCount: checks.length, tlsSpkiDigest: hex }
}

/** Names, messages and failed checks of an error and of its causes. */
function told(error) {
  const chain = []
  for (let item = error; item instanceof Error && chain.length < 5; item = item.cause) chain.push(item)
  return {
    names: chain.map(item => item.constructor.name),
    messages: chain.map(item => item.message),
    failed: chain.flatMap(item => item.failed?.map(check => check.name) ?? []),
    status: error.status ?? null,
  }
}
