// OpenAI's published schemas as checks: every answer and every chunk of the gateway is held to them.

import { Ajv2020 } from 'ajv/dist/2020.js'

type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

/** OpenAPI 3.0 says `nullable` where JSON Schema has a type. */
function withoutNullable(node: Json): Json {
  if (Array.isArray(node)) return node.map(withoutNullable)
  if (typeof node !== 'object' || node === null) return node
  const { nullable, ...rest } = node
  const inner = Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, withoutNullable(value)]))
  return nullable === true ? { anyOf: [inner, { type: 'null' }] } : inner
}

const file = new URL('../vectors/openai/openapi-subset.json', import.meta.url)
const document = withoutNullable(await Bun.file(file).json()) as { components: Json }
const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true })
ajv.addSchema({ $id: 'openai', components: document.components } as object)

export type OpenAiSchema =
  | 'CreateChatCompletionResponse'
  | 'CreateChatCompletionStreamResponse'
  | 'CreateCompletionResponse'

/** What is wrong with a value, one line each; nothing when it keeps to the schema. */
export function openAiFaults(name: OpenAiSchema, value: unknown): string[] {
  const validate = ajv.getSchema(`openai#/components/schemas/${name}`)
  if (validate === undefined) throw new Error(`no schema ${name}`)
  validate(value)
  return (validate.errors ?? []).map(error => `${error.instancePath} ${error.message}`)
}

/** The data of each event of a streamed answer, by the plainest reading there is. */
export function eventsOf(text: string): string[] {
  return text
    .split('\n\n')
    .filter(event => event.startsWith('data: '))
    .map(event => event.slice(6))
}
