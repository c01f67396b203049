// OpenAI's published schemas as checks: every completion and every chunk of the gateway is checked against them.

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

const file = new URL('../../vectors/openai/openapi-subset.json', import.meta.url)
const document = withoutNullable(await Bun.file(file).json()) as { components: Json }
const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true })
ajv.addSchema({ $id: 'openai', components: document.components } as object)

export type OpenAiSchema =
  | 'CreateChatCompletionResponse'
  | 'CreateChatCompletionStreamResponse'
  | 'CreateCompletionResponse'

/** One line for each thing that is wrong with a value; none when it is valid. */
export function openAiFaults(name: OpenAiSchema, value: unknown): string[] {
  const validate = ajv.getSchema(`openai#/components/schemas/${name}`)
  if (validate === undefined) throw new Error(`no schema ${name}`)
  validate(value)
  return (validate.errors ?? []).map(error => `${error.instancePath} ${error.message}`)
}

/** The data of each event of a stream, read in the simplest way. */
export function eventsOf(text: string): string[] {
  return text
    .split('\n\n')
    .filter(event => event.startsWith('data: '))
    .map(event => event.slice(6))
}
