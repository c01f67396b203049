// What somebody does with the stock client `ehbp`, and with OpenAI's client over it: in Bun and in Node alike. Effects: requests over the network.
// Arguments: the gateway's address, a gateway key, the hexadecimal of a key that is not the gateway's. Prints one JSON object.

import { createTransport, Identity, KeyConfigMismatchError, ProtocolError, Transport } from 'ehbp'
import OpenAI from 'openai'

const [url, key, otherKey] = process.argv.slice(2)
const transport = await createTransport(url)
const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
const chatUrl = `${url}/v1/chat/completions`
const messages = [{ role: 'user', content: 'Hello' }]
const tool = { type: 'function', function: { name: 'weather', parameters: { type: 'object' } } }

const results = {}

const whole = await transport.post(chatUrl, JSON.stringify({ model: 'tiny', messages }), { headers })
results.whole = [whole.status, (await whole.json()).choices[0].message.content]

const streamed = await transport.post(chatUrl, JSON.stringify({ model: 'tiny', messages, stream: true }), { headers })
const pieces = []
const decoder = new TextDecoder()
for await (const piece of streamed.body) pieces.push(decoder.decode(piece, { stream: true }))
results.streamed = [streamed.status, pieces.length > 1, pieces.join('').endsWith('data: [DONE]\n\n')]

const refused = async (body, more = {}) => {
  const response = await transport.post(chatUrl, body, { headers: { ...headers, ...more } })
  return [response.status, (await response.json()).error.code]
}
results.badJson = await refused('{')
results.badModel = await refused(JSON.stringify({ model: 'unknown', messages }))
results.badKey = await refused(JSON.stringify({ model: 'tiny', messages }), { authorization: 'Bearer gw_no' })
results.tooLarge = await refused(JSON.stringify({ model: 'tiny', messages, user: 'x'.repeat(70_000) }))

const stale = new Transport(await Identity.fromPublicKeyHex(otherKey), new URL(url).host)
const mismatch = await stale.post(chatUrl, '{}', { headers }).catch(error => error)
results.otherKeys = mismatch instanceof KeyConfigMismatchError && !(mismatch instanceof ProtocolError)

const models = await transport.get(`${url}/v1/models`, { headers })
results.models = (await models.json()).data.map(model => model.id)

const openai = new OpenAI({ apiKey: key, baseURL: `${url}/v1`, fetch: (input, init) => transport.request(input, init) })
const completion = await openai.chat.completions.create({ model: 'tiny', messages })
results.openai = [completion.choices[0].message.content, completion.usage.total_tokens]
const stream = openai.chat.completions.stream({ model: 'tiny', messages, tools: [tool], tool_choice: 'required' })
const [call] = (await stream.finalChatCompletion()).choices[0].message.tool_calls
results.openaiTools = [call.function.name, call.function.arguments]
const failure = await openai.chat.completions.create({ model: 'unknown', messages }).catch(error => error)
results.openaiError = [failure.constructor.name, failure.status, failure.code]
const text = await openai.completions.create({ model: 'tiny', prompt: 'Once' })
results.openaiText = text.choices[0].text

process.stdout.write(JSON.stringify(results))
