// OpenAPI schemas of the APIs that are translated to chat completions, with every field that is accepted. Pure.

import {
  AnyObject,
  array,
  CacheSalt,
  Count,
  Flag,
  Formats,
  Model,
  Name,
  nullable,
  object,
  open,
  Stream,
  Text,
  ToolChoices,
  ToolName,
  toolsMost,
  User,
  whole,
} from './bodies.ts'

const NumberOrNull = nullable({ type: 'number' })
const TextOrNull = nullable(Text)
const ObjectOrNull = nullable(AnyObject)
const ResponseId = {
  ...Text,
  pattern: '^resp_[0-9a-f]{32}$',
  description: 'Random, and only in the body. Together with the key it opens the response: keep it secret.',
}
const NoEffect = { ...TextOrNull, description: 'Without effect.' }

const FunctionTool = object(
  {
    type: { const: 'function' },
    name: ToolName,
    description: TextOrNull,
    parameters: ObjectOrNull,
    strict: Flag,
  },
  { required: ['type', 'name'] },
)

const CustomTool = object(
  { type: { const: 'custom' }, name: ToolName, description: TextOrNull, format: AnyObject },
  {
    required: ['type', 'name'],
    description: 'A grammar in `format` is text for the model; the gateway does not enforce it.',
  },
)

const NamespaceTool = object(
  {
    type: { const: 'namespace' },
    name: { ...Text, minLength: 1 },
    description: TextOrNull,
    tools: array({ anyOf: [FunctionTool, CustomTool] }),
  },
  { required: ['type', 'name', 'tools'], description: 'Calls of its tools have `namespace` and `name`.' },
)

const RunByClient = whole({
  type: { enum: ['tool_search', 'local_shell', 'shell', 'apply_patch', 'computer', 'computer_use_preview'] },
})

const ResponsesRequest = object(
  {
    model: Model,
    input: {
      description:
        'A text, or items: message (input_text, input_image, input_file, input_audio, output_text, refusal), function_call, custom_tool_call, tool_search_call, local_shell_call, shell_call, apply_patch_call, computer_call, the outputs of those, agent_message, additional_tools, item_reference. Reasoning items are dropped. Of other items only the text is kept, and x-strongroom-ignored names them. If the last item is compaction_trigger, the response is one compaction item: a summary by the model, which the client sends instead of the items before it.',
      anyOf: [Text, array(AnyObject, { minItems: 1 })],
    },
    instructions: TextOrNull,
    previous_response_id: {
      ...TextOrNull,
      description:
        'A response to the same key, at most some minutes old. A model outside the measured VM cannot build on a response of a model inside.',
    },
    tools: nullable(array({ anyOf: [FunctionTool, CustomTool, NamespaceTool, RunByClient] }, { maxItems: toolsMost })),
    tool_choice: {
      anyOf: [
        ToolChoices,
        whole({ type: { enum: ['function', 'custom'] }, namespace: TextOrNull, name: Text }),
        RunByClient,
        whole({
          type: { const: 'allowed_tools' },
          mode: { enum: ['auto', 'required'] },
          tools: array(AnyObject, { minItems: 1 }),
        }),
      ],
    },
    parallel_tool_calls: Flag,
    text: nullable(
      object({
        format: nullable(
          object(
            { type: Formats, name: Name, description: Text, schema: AnyObject, strict: Flag },
            { required: ['type'] },
          ),
        ),
        verbosity: NoEffect,
      }),
    ),
    max_output_tokens: nullable({ ...Count, minimum: 1 }),
    temperature: NumberOrNull,
    top_p: NumberOrNull,
    top_logprobs: nullable({ ...Count, minimum: 0, maximum: 20 }),
    include: nullable(array(Text)),
    reasoning: nullable(object({ effort: TextOrNull, summary: NoEffect })),
    stream: Stream,
    stream_options: nullable(object({ include_obfuscation: Flag })),
    metadata: {
      ...ObjectOrNull,
      maxProperties: 16,
      additionalProperties: { ...Text, maxLength: 512 },
      description: 'Returned in the response.',
    },
    store: {
      ...Flag,
      description:
        '`false`: the response is not stored. The response states whether it is. An encrypted request whose body is not bound to its key is never stored.',
    },
    truncation: { ...TextOrNull, description: 'The input is never truncated.' },
    user: User,
    safety_identifier: User,
    cache_salt: CacheSalt,
  },
  {
    description:
      "OpenAI's Responses API. The gateway keeps responses in memory for some minutes. conversation, prompt, background and fields of chat completions are a 400 with a remedy. Other fields and tools that run at OpenAI are dropped, and x-strongroom-ignored names them.",
    required: ['model', 'input'],
  },
)

const ResponsesResponse = object(
  {
    id: ResponseId,
    object: { const: 'response' },
    created_at: Count,
    status: { enum: ['completed', 'incomplete'] },
    incomplete_details: nullable(object({ reason: { enum: ['max_output_tokens', 'content_filter'] } })),
    model: Text,
    output: array(
      open(
        whole({
          id: Text,
          type: {
            enum: [
              ...['reasoning', 'message', 'function_call', 'custom_tool_call', 'tool_search_call', 'local_shell_call'],
              ...['shell_call', 'apply_patch_call', 'computer_call', 'compaction'],
            ],
          },
        }),
      ),
    ),
    store: { type: 'boolean' },
    usage: whole({ input_tokens: Count, output_tokens: Count, total_tokens: Count }),
  },
  {
    description:
      "OpenAI's Response. Instructions and tools of the request are not repeated in it. Reasoning that the model shows is a separate item.",
    required: ['id', 'object', 'created_at', 'status', 'model', 'output', 'store', 'usage'],
  },
)

const InputItems = object(
  {
    object: { const: 'list' },
    data: array(open(whole({ id: Text }))),
    first_id: nullable(Text),
    last_id: nullable(Text),
    has_more: { type: 'boolean' },
  },
  { description: "OpenAI's list of a response's input items.", required: ['object', 'data', 'has_more'] },
)

const CompactionResponse = object(
  {
    id: ResponseId,
    object: { const: 'response.compaction' },
    created_at: Count,
    output: array(whole({ id: Text, type: { const: 'compaction' }, encrypted_content: Text }), {
      minItems: 1,
      maxItems: 1,
    }),
    usage: whole({ input_tokens: Count, output_tokens: Count, total_tokens: Count }),
  },
  {
    description: "OpenAI's compacted response: send its output instead of the input that it summarizes.",
    required: ['id', 'object', 'created_at', 'output', 'usage'],
  },
)

const Blocks = { anyOf: [Text, array(open(whole({ type: Text })))] }

const MessagesRequest = object(
  {
    model: Model,
    max_tokens: { ...Count, minimum: 1 },
    messages: array(
      {
        type: 'object',
        required: ['role', 'content'],
        description:
          'Blocks are text, image, document, tool_use, tool_result and tool_reference; thinking of earlier messages is dropped, and is_error has no effect. Of other blocks only the text is kept, and x-strongroom-ignored names them.',
        properties: { role: { enum: ['user', 'assistant', 'system'] }, content: Blocks },
      },
      { minItems: 1 },
    ),
    system: Blocks,
    tools: nullable(
      array(
        {
          anyOf: [
            object(
              {
                type: { enum: ['custom', null] },
                name: ToolName,
                description: Text,
                input_schema: AnyObject,
                strict: Flag,
              },
              { required: ['name', 'input_schema'] },
            ),
            whole({ type: { ...Text, pattern: '^(bash|text_editor|memory|computer)_[0-9]{8}$' }, name: ToolName }),
          ],
        },
        { maxItems: toolsMost },
      ),
    ),
    tool_choice: nullable(
      object(
        { type: { enum: ['auto', 'any', 'tool', 'none'] }, name: Text, disable_parallel_tool_use: Flag },
        { required: ['type'] },
      ),
    ),
    stop_sequences: nullable(array({ ...Text, minLength: 1, maxLength: 1024 }, { maxItems: 16 })),
    temperature: NumberOrNull,
    top_p: NumberOrNull,
    top_k: { ...nullable(Count), description: 'Only if the engine of the model supports it.' },
    output_config: nullable(
      object({ effort: TextOrNull, format: nullable(whole({ type: { const: 'json_schema' }, schema: AnyObject })) }),
    ),
    stream: Stream,
    metadata: nullable(
      open(
        object(
          { user_id: TextOrNull },
          {
            description:
              '`user_id` names the end user. A key may have a budget for each, and may refuse requests that name none.',
          },
        ),
      ),
    ),
    cache_salt: CacheSalt,
  },
  {
    description:
      "Anthropic's Messages API. container, mcp_servers, inference_geo and fields of chat completions are a 400. Other fields and tools that run at Anthropic are dropped, and x-strongroom-ignored names them. The headers anthropic-version and anthropic-beta are ignored.",
    required: ['model', 'max_tokens', 'messages'],
  },
)

const MessagesResponse = object(
  {
    id: Text,
    type: { const: 'message' },
    role: { const: 'assistant' },
    model: Text,
    content: array(open(whole({ type: { enum: ['thinking', 'text', 'tool_use'] } }))),
    stop_reason: { enum: ['end_turn', 'max_tokens', 'tool_use', 'refusal'] },
    stop_sequence: { type: 'null' },
    usage: whole({ input_tokens: Count, output_tokens: Count }),
  },
  {
    description:
      "Anthropic's Message. Thinking that the model shows is a separate block without a signature. A stop sequence that ended the message is not named: the reason is `end_turn`.",
    required: ['id', 'type', 'role', 'model', 'content', 'stop_reason', 'usage'],
  },
)

export const SHAPED_SCHEMAS = {
  ResponsesRequest,
  ResponsesResponse,
  InputItems,
  CompactionResponse,
  MessagesRequest,
  MessagesResponse,
} as const
