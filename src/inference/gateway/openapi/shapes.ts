// Bodies of the APIs that are translated to chat completions, for the OpenAPI document: every field that is taken. Pure.

const Flag = { type: ['boolean', 'null'] } as const
const NumberOrNull = { type: ['number', 'null'] } as const
const CountOrNull = { type: ['integer', 'null'], minimum: 1 } as const
const Text = { type: 'string' } as const
const Metadata = {
  type: ['object', 'null'],
  maxProperties: 16,
  additionalProperties: { type: 'string', maxLength: 512 },
}

const FunctionTool = {
  type: 'object',
  required: ['type', 'name'],
  properties: {
    type: { const: 'function' },
    name: { type: 'string', pattern: '^[a-zA-Z0-9_-]{1,64}$' },
    description: { type: ['string', 'null'] },
    parameters: { type: ['object', 'null'] },
    strict: Flag,
  },
} as const

const ResponsesRequest = {
  type: 'object',
  description:
    "OpenAI's Responses API without what is kept between requests: previous_response_id, conversation, prompt, background and built-in tools are a 400 that says what to do instead. Fields that are not named here are a 400, but for prompt_cache_key, prompt_cache_options, prompt_cache_retention, safety_identifier and service_tier, which have no effect.",
  required: ['model', 'input'],
  properties: {
    model: { type: 'string', description: 'Exact id from /v1/models.' },
    input: {
      description:
        'A text, or items: message (input_text, input_image, input_file, input_audio, output_text, refusal), function_call, function_call_output. Items reasoning are left out.',
      anyOf: [Text, { type: 'array', minItems: 1, items: { type: 'object' } }],
    },
    instructions: { type: ['string', 'null'] },
    tools: { type: ['array', 'null'], maxItems: 128, items: FunctionTool },
    tool_choice: {
      anyOf: [
        { enum: ['auto', 'none', 'required', null] },
        { type: 'object', required: ['type', 'name'], properties: { type: { const: 'function' }, name: Text } },
      ],
    },
    parallel_tool_calls: Flag,
    text: {
      type: ['object', 'null'],
      properties: {
        format: {
          type: ['object', 'null'],
          required: ['type'],
          properties: {
            type: { enum: ['text', 'json_object', 'json_schema'] },
            name: { type: 'string', pattern: '^[a-zA-Z0-9_-]{1,64}$' },
            description: Text,
            schema: { type: 'object' },
            strict: Flag,
          },
        },
        verbosity: { type: ['string', 'null'], description: 'Without effect.' },
      },
    },
    max_output_tokens: CountOrNull,
    temperature: NumberOrNull,
    top_p: NumberOrNull,
    top_logprobs: { type: ['integer', 'null'], minimum: 0, maximum: 20 },
    include: {
      type: ['array', 'null'],
      items: { enum: ['message.output_text.logprobs', 'reasoning.encrypted_content'] },
    },
    reasoning: {
      type: ['object', 'null'],
      properties: {
        effort: { type: ['string', 'null'] },
        summary: { type: ['string', 'null'], description: 'Without effect.' },
      },
    },
    stream: { ...Flag, description: '`true` for server-sent events.' },
    stream_options: { type: ['object', 'null'], properties: { include_obfuscation: Flag } },
    metadata: { ...Metadata, description: 'Comes back in the response.' },
    store: { ...Flag, description: 'Nothing is stored: the response says `store: false`.' },
    truncation: { enum: ['disabled', null] },
    user: { type: ['string', 'null'], maxLength: 256 },
  },
} as const

const ResponsesResponse = {
  type: 'object',
  description:
    "OpenAI's Response. Instructions and tools of the request are not repeated in it. Reasoning that the model shows is an item of its own.",
  required: ['id', 'object', 'created_at', 'status', 'model', 'output', 'store', 'usage'],
  properties: {
    id: Text,
    object: { const: 'response' },
    created_at: { type: 'integer' },
    status: { enum: ['completed', 'incomplete'] },
    incomplete_details: {
      type: ['object', 'null'],
      properties: { reason: { enum: ['max_output_tokens', 'content_filter'] } },
    },
    model: Text,
    output: {
      type: 'array',
      items: {
        type: 'object',
        required: ['id', 'type'],
        properties: { id: Text, type: { enum: ['reasoning', 'message', 'function_call'] } },
      },
    },
    store: { const: false },
    usage: {
      type: 'object',
      required: ['input_tokens', 'output_tokens', 'total_tokens'],
      properties: {
        input_tokens: { type: 'integer' },
        output_tokens: { type: 'integer' },
        total_tokens: { type: 'integer' },
      },
    },
  },
} as const

const Blocks = { anyOf: [Text, { type: 'array', items: { type: 'object', required: ['type'] } }] } as const

const MessagesRequest = {
  type: 'object',
  description:
    "Anthropic's Messages API. Fields that are not named here are a 400, but for metadata, thinking, service_tier and cache_control, which have no effect. Headers anthropic-version and anthropic-beta are passed over.",
  required: ['model', 'max_tokens', 'messages'],
  properties: {
    model: { type: 'string', description: 'Exact id from /v1/models.' },
    max_tokens: { type: 'integer', minimum: 1 },
    messages: {
      type: 'array',
      minItems: 1,
      items: {
        type: 'object',
        required: ['role', 'content'],
        description:
          'Blocks are text, image, document, tool_use and tool_result; thinking of earlier messages is left out, and is_error has no effect.',
        properties: { role: { enum: ['user', 'assistant', 'system'] }, content: Blocks },
      },
    },
    system: Blocks,
    tools: {
      type: ['array', 'null'],
      maxItems: 128,
      items: {
        type: 'object',
        required: ['name', 'input_schema'],
        properties: {
          type: { enum: ['custom', null] },
          name: { type: 'string', pattern: '^[a-zA-Z0-9_-]{1,64}$' },
          description: Text,
          input_schema: { type: 'object' },
          strict: Flag,
        },
      },
    },
    tool_choice: {
      type: ['object', 'null'],
      required: ['type'],
      properties: {
        type: { enum: ['auto', 'any', 'tool', 'none'] },
        name: Text,
        disable_parallel_tool_use: Flag,
      },
    },
    stop_sequences: { type: ['array', 'null'], maxItems: 16, items: { type: 'string', minLength: 1, maxLength: 1024 } },
    temperature: NumberOrNull,
    top_p: NumberOrNull,
    top_k: { type: ['integer', 'null'], description: 'Where the engine of the model has it.' },
    output_config: {
      type: ['object', 'null'],
      properties: {
        effort: { type: ['string', 'null'] },
        format: {
          type: ['object', 'null'],
          required: ['type', 'schema'],
          properties: { type: { const: 'json_schema' }, schema: { type: 'object' } },
        },
      },
    },
    stream: { ...Flag, description: '`true` for server-sent events.' },
  },
} as const

const MessagesResponse = {
  type: 'object',
  description:
    "Anthropic's Message. Thinking that the model shows is a block of its own, without a signature. A stop sequence that ended the message is not told: it is `end_turn`.",
  required: ['id', 'type', 'role', 'model', 'content', 'stop_reason', 'usage'],
  properties: {
    id: Text,
    type: { const: 'message' },
    role: { const: 'assistant' },
    model: Text,
    content: {
      type: 'array',
      items: {
        type: 'object',
        required: ['type'],
        properties: { type: { enum: ['thinking', 'text', 'tool_use'] } },
      },
    },
    stop_reason: { enum: ['end_turn', 'max_tokens', 'tool_use', 'refusal'] },
    stop_sequence: { type: 'null' },
    usage: {
      type: 'object',
      required: ['input_tokens', 'output_tokens'],
      properties: { input_tokens: { type: 'integer' }, output_tokens: { type: 'integer' } },
    },
  },
} as const

export const SHAPED_SCHEMAS = { ResponsesRequest, ResponsesResponse, MessagesRequest, MessagesResponse } as const

/** `response`: its schema. `stream`: what comes in its place with `stream: true`. */
export const SHAPED_OPERATIONS = [
  {
    path: '/v1/responses',
    id: 'createResponse',
    summary: 'Response, made of a chat completion; nothing is kept',
    body: { schema: 'ResponsesRequest', example: { model: 'strongroom-tiny', input: 'Hello', stream: true } },
    response: 'ResponsesResponse',
    stream:
      "OpenAI's events of a response, `response.completed` or `response.incomplete` and `data: [DONE]` last. One that breaks ends with `response.failed` and `error`.",
  },
  {
    path: '/v1/messages',
    id: 'createMessage',
    summary: 'Message, made of a chat completion',
    description:
      "The key may stand in x-api-key instead. An error has `type: 'error'` beside `error`, and Anthropic's types in `error.type`.",
    body: {
      schema: 'MessagesRequest',
      example: { model: 'strongroom-tiny', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] },
    },
    response: 'MessagesResponse',
    stream: "Anthropic's events of a message, `message_stop` last. One that breaks ends with `error`.",
  },
] as const
