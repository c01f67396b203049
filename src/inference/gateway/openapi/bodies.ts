// OpenAPI schemas of completions and embeddings, with the fields of OpenAI's that the gateway checks; and helpers that
// write schemas. Pure.

type Schema = Readonly<Record<string, unknown>>
type Named = { readonly required?: readonly string[]; readonly description?: string }

export function object(properties: Schema, { description, required }: Named = {}): Schema {
  return {
    type: 'object',
    ...(description === undefined ? {} : { description }),
    ...(required === undefined ? {} : { required }),
    properties,
  }
}

/** Returns the schema of an object whose fields are all required. */
export function whole(properties: Schema): Schema {
  return object(properties, { required: Object.keys(properties) })
}

/** Returns an object that accepts further fields. Generated clients refuse such fields without this mark. */
export function open(schema: Schema): Schema {
  return { ...schema, additionalProperties: true }
}

export function array(items: Schema, limits: { readonly minItems?: number; readonly maxItems?: number } = {}): Schema {
  return { type: 'array', ...limits, items }
}

export function nullable(schema: Schema): Schema {
  return { ...schema, type: [schema.type, 'null'] }
}

export const Text = { type: 'string' } as const
export const Count = { type: 'integer' } as const
export const AnyObject = { type: 'object', additionalProperties: true } as const
export const Flag = nullable({ type: 'boolean' })
export const Stream = { ...Flag, description: '`true` for server-sent events.' }
export const Model = { ...Text, description: 'Exact id from /v1/models.' }
export const Name = { ...Text, pattern: '^[a-zA-Z0-9_-]{1,64}$' }
export const ToolName = { ...Text, pattern: '^[a-zA-Z0-9_-]{1,128}$' }
export const toolsMost = 1_024
export const User = nullable({
  ...Text,
  maxLength: 256,
  description: 'The end user. A key may have a budget for each, and may refuse requests that name none.',
})
export const CacheSalt = nullable({
  ...Text,
  minLength: 1,
  maxLength: 256,
  description:
    'A secret of the client: only requests with the same key and the same salt share a prompt cache. No upstream gets it.',
})
export const Formats = { enum: ['text', 'json_object', 'json_schema'] }
/** The values by which a request chooses among tools without naming one. */
export const ToolChoices = { enum: ['auto', 'none', 'required', null] }

const asOpenAi =
  'As in the API of OpenAI. Sampling fields such as temperature, max_tokens and stop are forwarded. Fields that the gateway does not know are not: x-strongroom-ignored names them, or they are refused.'
const StreamOptions = nullable(
  object({
    include_usage: Flag,
    include_obfuscation: { ...Flag, description: 'Whether chunks are padded. Default: as the gateway is configured.' },
  }),
)
const Choices = nullable({ ...Count, minimum: 1, maximum: 128 })
const Constraint = nullable(
  object(
    {
      json: AnyObject,
      regex: { ...Text, maxLength: 512 },
      choice: array(Text, { minItems: 1, maxItems: 256 }),
    },
    {
      description:
        'One constraint on the answer, for models whose engines support it. Also taken as guided_json, guided_regex, guided_choice, json_schema and regex. Grammars are refused.',
    },
  ),
)

export const ChatCompletionRequest = open(
  object(
    {
      model: Model,
      messages: array(open(whole({ role: { enum: ['developer', 'system', 'user', 'assistant', 'tool'] } })), {
        minItems: 1,
      }),
      stream: Stream,
      stream_options: StreamOptions,
      n: Choices,
      cache_salt: CacheSalt,
      structured_outputs: Constraint,
      response_format: nullable(
        object(
          {
            type: Formats,
            json_schema: object(
              { name: Name, description: Text, strict: Flag, schema: AnyObject },
              { required: ['name'] },
            ),
          },
          {
            description:
              'The gateway checks json_object and strict json_schema: a completion that ends normally and violates them is a 502. Schemas are JSON Schema 2020-12 without uniqueItems, $dynamicRef and nested repetitions in patterns.',
            required: ['type'],
          },
        ),
      ),
      tools: nullable(
        array(
          open(
            object(
              {
                type: Text,
                function: object(
                  { name: ToolName, description: Text, parameters: nullable(AnyObject), strict: Flag },
                  { required: ['name'] },
                ),
                custom: object({ name: ToolName, description: Text, format: AnyObject }, { required: ['name'] }),
              },
              {
                description:
                  'A function or a custom tool, which takes a string; the flat form of ResponsesRequest is accepted too. A call of a custom tool has `custom`, and repeats it in `function`.',
                required: ['type'],
              },
            ),
          ),
          { maxItems: toolsMost },
        ),
      ),
      tool_choice: {
        description:
          '`auto`, `none`, `required`, `allowed_tools`, or a tool by name. A completion that does not follow it is a 502. With `auto`, a call of a tool that was not offered is forwarded.',
        anyOf: [
          ToolChoices,
          whole({ type: { const: 'function' }, function: whole({ name: Text }) }),
          whole({ type: { const: 'custom' }, custom: whole({ name: Text }) }),
          whole({ type: { enum: ['function', 'custom'] }, name: Text }),
          whole({
            type: { const: 'allowed_tools' },
            allowed_tools: whole({ mode: { enum: ['auto', 'required'] }, tools: array(AnyObject, { minItems: 1 }) }),
          }),
        ],
      },
    },
    {
      description: `${asOpenAi} Instead of \`messages\` a body may have \`input\` and other fields of ResponsesRequest, without \`previous_response_id\`; it is answered as a chat.`,
      required: ['model'],
    },
  ),
)

export const TokenCount = whole({ input_tokens: Count })
export const ResponseTokenCount = whole({ object: { const: 'response.input_tokens' }, input_tokens: Count })

const Tokens = array({ ...Count, minimum: 0 }, { minItems: 1 })

export const CompletionRequest = open(
  object(
    {
      model: Model,
      prompt: { anyOf: [Text, array(Text, { minItems: 1 }), Tokens, array(Tokens, { minItems: 1 })] },
      stream: Stream,
      stream_options: StreamOptions,
      n: Choices,
      cache_salt: CacheSalt,
      structured_outputs: Constraint,
    },
    { description: asOpenAi, required: ['model', 'prompt'] },
  ),
)

export const CompletionResponse = object(
  {
    id: Text,
    object: { enum: ['chat.completion', 'text_completion'] },
    created: Count,
    model: Text,
    choices: array(AnyObject),
    usage: whole({ prompt_tokens: Count, completion_tokens: Count, total_tokens: Count }),
  },
  {
    description: "OpenAI's CreateChatCompletionResponse or CreateCompletionResponse.",
    required: ['id', 'object', 'created', 'model', 'choices'],
  },
)

const InputText = { ...Text, minLength: 1 }
const inputs = { minItems: 1, maxItems: 2048 }

export const EmbeddingsRequest = object(
  {
    model: { ...Text, description: 'Exact id from /v1/models, of a model that makes embeddings.' },
    input: { anyOf: [InputText, array(InputText, inputs), Tokens, array(Tokens, inputs)] },
    encoding_format: {
      enum: ['float', 'base64', null],
      description: 'base64: 32-bit floats, little-endian. A third of the size, so a response holds more of them.',
    },
    dimensions: nullable({ ...Count, minimum: 1, maximum: 16_384 }),
    user: User,
    cache_salt: CacheSalt,
  },
  {
    description:
      'As in the API of OpenAI. Other fields are not forwarded: x-strongroom-ignored names them, or they are refused.',
    required: ['model', 'input'],
  },
)

export const RerankRequest = object(
  {
    model: { ...Text, description: 'Exact id from /v1/models, of a model that ranks documents.' },
    query: InputText,
    documents: array(InputText, inputs),
    top_n: { ...nullable({ ...Count, minimum: 1, maximum: 2048 }), description: 'Results to return. Default: all.' },
    return_documents: { ...Flag, description: 'Whether results include their documents. Default: false.' },
    user: User,
    cache_salt: CacheSalt,
  },
  {
    description:
      'As in Cohere, Jina and vLLM. Other fields are not forwarded: x-strongroom-ignored names them, or they are refused.',
    required: ['model', 'query', 'documents'],
  },
)

export const RerankResponse = whole({
  object: { const: 'list' },
  model: Text,
  results: array(
    object(
      { index: Count, relevance_score: { type: 'number' }, document: whole({ text: Text }) },
      {
        description: 'Best first; `index` is the position of the document in the request.',
        required: ['index', 'relevance_score'],
      },
    ),
  ),
  usage: whole({ prompt_tokens: Count, total_tokens: Count }),
})

export const EmbeddingsResponse = object(
  {
    object: { const: 'list' },
    data: array(
      whole({
        object: { const: 'embedding' },
        index: Count,
        embedding: { anyOf: [array({ type: 'number' }), Text] },
      }),
    ),
    model: Text,
    usage: whole({ prompt_tokens: Count, total_tokens: Count }),
  },
  { description: "OpenAI's CreateEmbeddingResponse.", required: ['object', 'data', 'model', 'usage'] },
)
