// A language model that says nothing sensible, for demonstrations and tests: real architecture, real tokenizer, random
// weights. Pure.

import { encodeGguf, type GgufTensor, type GgufValue } from './gguf.ts'

const seed = 0x5712_0a6d
const shape = { embedding: 128, feedForward: 384, layers: 2, heads: 4, headsKv: 2, contextTokens: 32_768 } as const

/** In ids after the ordinary tokens; those of type control never come out of text. */
const controlTokens = ['<|begin|>', '<|im_start|>', '<|im_end|>'] as const

/** Pairs that become one token, best first; a part is a character or an earlier result. `Ġ` is a blank. */
const merges = [
  'Ġ t',
  'h e',
  'i n',
  'Ġ a',
  'r e',
  'o n',
  'Ġt he',
  'e r',
  'a t',
  'Ġ s',
  'o u',
  'Ġ w',
  'e n',
  'Ġ o',
  'i t',
  'i s',
  'o r',
  'Ġ c',
  'e s',
  'Ġ b',
  'a n',
  'e d',
  'Ġ f',
  'in g',
  'Ġ p',
  'a l',
  'Ġa n',
  'Ġan d',
] as const

/** Tools in a form that llama.cpp recognizes from the template, so that it can constrain a tool's parameters. */
const chatTemplate = `{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '\\n</tools>\\n<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role }}
    {%- if message.content %}
        {{- '\\n' + message.content }}
    {%- endif %}
    {%- for tool_call in message.tool_calls or [] %}
        {{- '\\n<tool_call>\\n{"name": "' + tool_call.function.name + '", "arguments": ' }}
        {{- tool_call.function.arguments | tojson }}
        {{- '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}`

/** The whole GGUF file, 1 to 3 MB; equal bytes on every machine. */
export function tinyModel(): Uint8Array {
  const tokens = vocabulary()
  const control = (name: (typeof controlTokens)[number]) => tokens.indexOf(name)
  const headSize = shape.embedding / shape.heads
  const metadata: Record<string, GgufValue> = {
    'general.architecture': string('llama'),
    'general.name': string('strongroom-tiny'),
    'general.file_type': uint32(0),
    'llama.vocab_size': uint32(tokens.length),
    'llama.context_length': uint32(shape.contextTokens),
    'llama.embedding_length': uint32(shape.embedding),
    'llama.block_count': uint32(shape.layers),
    'llama.feed_forward_length': uint32(shape.feedForward),
    'llama.attention.head_count': uint32(shape.heads),
    'llama.attention.head_count_kv': uint32(shape.headsKv),
    'llama.attention.layer_norm_rms_epsilon': { kind: 'float32', value: 1e-5 },
    'llama.rope.dimension_count': uint32(headSize),
    'tokenizer.ggml.model': string('gpt2'),
    'tokenizer.ggml.pre': string('gpt-2'),
    'tokenizer.ggml.tokens': { kind: 'strings', value: tokens },
    'tokenizer.ggml.token_type': { kind: 'int32s', value: tokens.map(token => (isControl(token) ? 3 : 1)) },
    'tokenizer.ggml.merges': { kind: 'strings', value: merges },
    'tokenizer.ggml.bos_token_id': uint32(control('<|begin|>')),
    'tokenizer.ggml.eos_token_id': uint32(control('<|im_end|>')),
    // The template writes it.
    'tokenizer.ggml.add_bos_token': { kind: 'bool', value: false },
    'tokenizer.chat_template': string(chatTemplate),
  }
  return encodeGguf(metadata, weights(tokens))
}

/** 256 bytes, the merged pairs, the control tokens. */
export function vocabulary(): string[] {
  return [...byteCharacters(), ...merges.map(pair => pair.replace(' ', '')), ...controlTokens]
}

function isControl(token: string): boolean {
  return controlTokens.some(control => control === token)
}

/** A visible character for each byte: itself where it is one, else one from U+0100 on (the byte-level BPE of GPT-2). */
function byteCharacters(): string[] {
  let next = 0x100
  return Array.from({ length: 256 }, (_, byte) => {
    const visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad)
    return String.fromCodePoint(visible ? byte : next++)
  })
}

function weights(tokens: readonly string[]): GgufTensor[] {
  const random = randomNumbers(seed)
  const { embedding, feedForward, heads, headsKv, layers } = shape
  const kv = (embedding / heads) * headsKv
  const matrix = (name: string, input: number, output: number, deviation = 1 / Math.sqrt(input)): GgufTensor => ({
    name: `${name}.weight`,
    shape: [input, output],
    data: Float32Array.from({ length: input * output }, () => random() * deviation),
  })
  const norm = (name: string): GgufTensor => ({
    name: `${name}.weight`,
    shape: [embedding],
    data: new Float32Array(embedding).fill(1),
  })
  const tensors = [matrix('token_embd', embedding, tokens.length, 1)]
  for (let layer = 0; layer < layers; layer += 1) {
    const block = `blk.${layer}`
    tensors.push(
      norm(`${block}.attn_norm`),
      matrix(`${block}.attn_q`, embedding, embedding),
      matrix(`${block}.attn_k`, embedding, kv),
      matrix(`${block}.attn_v`, embedding, kv),
      matrix(`${block}.attn_output`, embedding, embedding),
      norm(`${block}.ffn_norm`),
      matrix(`${block}.ffn_gate`, embedding, feedForward),
      matrix(`${block}.ffn_up`, embedding, feedForward),
      matrix(`${block}.ffn_down`, feedForward, embedding),
    )
  }
  tensors.push(norm('output_norm'), readable(matrix('output', embedding, tokens.length, logitDeviation), tokens))
  return tensors
}

/** Large enough that the likeliest of the readable tokens leave a zero far behind. */
const logitDeviation = 0.5

/** Gives tokens that are no plain text the same low likelihood, so that answers are text, and end. */
function readable(output: GgufTensor, tokens: readonly string[]): GgufTensor {
  tokens.forEach((token, id) => {
    const plain = /^[Ġ!-~]+$/.test(token) && !isControl(token)
    if (!plain && token !== '<|im_end|>') output.data.fill(0, id * shape.embedding, (id + 1) * shape.embedding)
  })
  return output
}

/** Mean 0, deviation 1, by sums of four uniform numbers: the same on every machine. Mulberry32 underneath. */
function randomNumbers(start: number): () => number {
  let state = start
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000
  }
  const deviationOfSum = Math.sqrt(4 / 12)
  return () => (uniform() + uniform() + uniform() + uniform() - 2) / deviationOfSum
}

function uint32(value: number): GgufValue {
  return { kind: 'uint32', value }
}

function string(value: string): GgufValue {
  return { kind: 'string', value }
}
