// Bodies of completions and embeddings for the OpenAPI document: of OpenAI's fields those that the gateway checks. Pure.

const Flag = { type: ['boolean', 'null'] } as const

const StreamOptions = {
  include_usage: Flag,
  include_obfuscation: { ...Flag, description: 'Whether chunks are padded; left out: as the gateway is configured.' },
} as const

export const ChatCompletionRequest = {
  type: 'object',
  description: 'As OpenAI has it. Fields that are not named here are passed on as they are.',
  required: ['model', 'messages'],
  properties: {
    model: { type: 'string', description: 'Exact id from /v1/models.' },
    messages: {
      type: 'array',
      minItems: 1,
      items: {
        type: 'object',
        required: ['role'],
        properties: { role: { enum: ['developer', 'system', 'user', 'assistant', 'tool'] } },
      },
    },
    stream: { ...Flag, description: '`true` for server-sent events.' },
    stream_options: { type: ['object', 'null'], properties: StreamOptions },
    n: { type: ['integer', 'null'], minimum: 1, maximum: 128 },
    response_format: {
      type: ['object', 'null'],
      description:
        'What json_object and a strict json_schema promise is checked: a completion that ends by itself and breaks the promise is a 502. Schemas are JSON Schema 2020-12 without uniqueItems, $dynamicRef and nested repetitions in patterns.',
      required: ['type'],
      properties: {
        type: { enum: ['text', 'json_object', 'json_schema'] },
        json_schema: {
          type: 'object',
          required: ['name'],
          properties: {
            name: { type: 'string', pattern: '^[a-zA-Z0-9_-]{1,64}$' },
            strict: Flag,
            schema: { type: 'object' },
          },
        },
      },
    },
    tools: {
      type: ['array', 'null'],
      maxItems: 128,
      items: {
        type: 'object',
        required: ['type', 'function'],
        properties: {
          type: { const: 'function' },
          function: {
            type: 'object',
            required: ['name'],
            properties: {
              name: { type: 'string', pattern: '^[a-zA-Z0-9_-]{1,64}$' },
              description: { type: 'string' },
              parameters: { type: ['object', 'null'] },
            },
          },
        },
      },
    },
    tool_choice: {
      description: '`auto`, `none`, `required`, or a function by name. A completion that does not keep to it is a 502.',
      anyOf: [
        { enum: ['auto', 'none', 'required', null] },
        {
          type: 'object',
          required: ['type', 'function'],
          properties: {
            type: { const: 'function' },
            function: { type: 'object', required: ['name'], properties: { name: { type: 'string' } } },
          },
        },
      ],
    },
  },
} as const

const Tokens = { type: 'array', minItems: 1, items: { type: 'integer', minimum: 0 } } as const

export const CompletionRequest = {
  type: 'object',
  description: 'As OpenAI has it. Fields that are not named here are passed on as they are.',
  required: ['model', 'prompt'],
  properties: {
    model: { type: 'string', description: 'Exact id from /v1/models.' },
    prompt: {
      anyOf: [
        { type: 'string' },
        { type: 'array', minItems: 1, items: { type: 'string' } },
        Tokens,
        { type: 'array', minItems: 1, items: Tokens },
      ],
    },
    stream: { ...Flag, description: '`true` for server-sent events.' },
    stream_options: { type: ['object', 'null'], properties: StreamOptions },
    n: { type: ['integer', 'null'], minimum: 1, maximum: 128 },
  },
} as const

export const CompletionResponse = {
  type: 'object',
  description: "OpenAI's CreateChatCompletionResponse or CreateCompletionResponse.",
  required: ['id', 'object', 'created', 'model', 'choices'],
  properties: {
    id: { type: 'string' },
    object: { enum: ['chat.completion', 'text_completion'] },
    created: { type: 'integer' },
    model: { type: 'string' },
    choices: { type: 'array', items: { type: 'object' } },
    usage: {
      type: 'object',
      required: ['prompt_tokens', 'completion_tokens', 'total_tokens'],
      properties: {
        prompt_tokens: { type: 'integer' },
        completion_tokens: { type: 'integer' },
        total_tokens: { type: 'integer' },
      },
    },
  },
} as const

export const EmbeddingsRequest = {
  type: 'object',
  description: 'As OpenAI has it. Other fields are not passed on: they are named in x-strongroom-ignored, or refused.',
  required: ['model', 'input'],
  properties: {
    model: { type: 'string', description: 'Exact id from /v1/models, of a model that makes embeddings.' },
    input: {
      anyOf: [
        { type: 'string', minLength: 1 },
        { type: 'array', minItems: 1, maxItems: 2048, items: { type: 'string', minLength: 1 } },
        Tokens,
        { type: 'array', minItems: 1, maxItems: 2048, items: Tokens },
      ],
    },
    encoding_format: {
      enum: ['float', 'base64', null],
      description: 'base64: 32-bit floats, little-endian. A third of the size, so a response has room for more.',
    },
    dimensions: { type: ['integer', 'null'], minimum: 1, maximum: 16_384 },
    user: { type: ['string', 'null'], maxLength: 256 },
  },
} as const

export const EmbeddingsResponse = {
  type: 'object',
  description: "OpenAI's CreateEmbeddingResponse.",
  required: ['object', 'data', 'model', 'usage'],
  properties: {
    object: { const: 'list' },
    data: {
      type: 'array',
      items: {
        type: 'object',
        required: ['object', 'index', 'embedding'],
        properties: {
          object: { const: 'embedding' },
          index: { type: 'integer' },
          embedding: { anyOf: [{ type: 'array', items: { type: 'number' } }, { type: 'string' }] },
        },
      },
    },
    model: { type: 'string' },
    usage: {
      type: 'object',
      required: ['prompt_tokens', 'total_tokens'],
      properties: { prompt_tokens: { type: 'integer' }, total_tokens: { type: 'integer' } },
    },
  },
} as const
