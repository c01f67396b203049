// An upstream for tests: OpenAI-compatible over real HTTP, deterministic, able to misbehave in every known way.

import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A request as the upstream got it. */
export type Seen = { readonly path: string; readonly headers: Headers; readonly body: Record<string, unknown> }

/** Writes a response. `gone` resolves when the gateway closes the connection. */
export type Behaviour = (response: ServerResponse, seen: Seen, gone: Promise<void>) => void | Promise<void>

export type TestUpstream = {
  readonly url: string
  readonly seen: Seen[]
  /** Requests whose connection is open and whose response has not ended. */
  readonly active: () => number
  readonly activeMax: () => number
  /** When the gateway last aborted a response, by performance.now(). */
  readonly lastGoneMs: () => number | null
  behave: Behaviour
  /** Status of GET /models. */
  modelsStatus: number
  /** Text of GET /metrics; null for 404. */
  metrics: string | null
  readonly stop: () => Promise<void>
}

export async function startUpstream(behave: Behaviour = wellBehaved): Promise<TestUpstream> {
  const seen: Seen[] = []
  let active = 0
  let activeMax = 0
  let lastGoneMs: number | null = null
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', chunk => chunks.push(chunk))
    request.on('end', () => {
      if (request.url?.endsWith('/models')) {
        response.writeHead(upstream.modelsStatus, { 'content-type': 'application/json' }).end('{"data":[]}')
        return
      }
      if (request.url === '/metrics') {
        response.writeHead(upstream.metrics === null ? 404 : 200).end(upstream.metrics)
        return
      }
      const item = {
        path: request.url ?? '',
        headers: new Headers(request.headers as Record<string, string>),
        body: JSON.parse(Buffer.concat(chunks).toString()),
      }
      seen.push(item)
      active += 1
      activeMax = Math.max(activeMax, active)
      const gone = Promise.withResolvers<void>()
      let isOver = false
      const over = () => {
        if (isOver) return
        isOver = true
        active -= 1
        if (!response.writableFinished) lastGoneMs = performance.now()
        gone.resolve()
      }
      response.on('close', over)
      response.on('finish', over)
      void upstream.behave(response, item, gone.promise)
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const upstream: TestUpstream = {
    url: `http://127.0.0.1:${port}/v1`,
    seen,
    active: () => active,
    activeMax: () => activeMax,
    lastGoneMs: () => lastGoneMs,
    behave,
    modelsStatus: 200,
    metrics: null,
    stop: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
  return upstream
}

export const USAGE = { prompt_tokens: 11, completion_tokens: 3, total_tokens: 14 }

type Body = Record<string, unknown>

/** Text in three pieces; calls the first tool if one is required; JSON if requested. Sloppy where engines are. */
export const wellBehaved: Behaviour = (response, { path, body }) => {
  const isChat = path.endsWith('/chat/completions')
  if (body.stream === true) {
    openSse(response)
    for (const event of isChat ? chatEvents(body) : textEvents()) response.write(sse(event))
    if (asksUsage(body)) response.write(sse(chunk([], { usage: USAGE, timings: { predicted_ms: 1 } })))
    response.end('data: [DONE]\n\n')
    return
  }
  const choice = isChat
    ? { index: 0, finish_reason: toolOf(body) === null ? 'stop' : 'tool_calls', message: messageOf(body) }
    : { index: 0, finish_reason: 'stop', text: 'Grüße 👋 you', logprobs: null }
  sendJson(response, 200, {
    id: 'engine-1',
    object: 'whatever',
    created: 5,
    model: 'engine-model.gguf',
    system_fingerprint: 'engine-b1234',
    timings: { predicted_ms: 1 },
    choices: [choice],
    usage: USAGE,
  })
}

export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

export function openSse(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'x-engine': 'engine-header' })
}

export function sse(event: unknown): string {
  return `data: ${JSON.stringify(event)}\n\n`
}

export function chunk(choices: unknown[], more: Body = {}): Body {
  return { id: 'engine-1', object: 'chat.completion.chunk', created: 5, model: 'engine-model.gguf', choices, ...more }
}

export function delta(content: Body, finishReason: string | null = null): Body {
  return chunk([{ index: 0, delta: content, finish_reason: finishReason, engine_extra: 1 }])
}

function chatEvents(body: Body): Body[] {
  const tool = toolOf(body)
  if (tool !== null) {
    return [
      delta({ role: 'assistant', content: null }),
      delta({
        tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: tool, arguments: '{"city"' } }],
      }),
      delta({ tool_calls: [{ index: 0, function: { arguments: ':"Oslo"}' } }] }),
      delta({}, 'tool_calls'),
    ]
  }
  const pieces = body.response_format === undefined ? ['Grüße ', '👋 ', 'you'] : ['{"city"', ':"Os', 'lo"}']
  return [delta({ role: 'assistant', content: null }), ...pieces.map(content => delta({ content })), delta({}, 'stop')]
}

function textEvents(): Body[] {
  const pieces = ['Grüße ', '👋 ', 'you'].map(text => chunk([{ index: 0, text, finish_reason: null }]))
  return [...pieces, chunk([{ index: 0, text: '', finish_reason: 'stop' }])]
}

function messageOf(body: Body): Body {
  const tool = toolOf(body)
  if (tool !== null) {
    const call = { id: 'call_1', type: 'function', function: { name: tool, arguments: '{"city":"Oslo"}' } }
    return { role: 'assistant', content: null, tool_calls: [call] }
  }
  const content = body.response_format === undefined ? 'Grüße 👋 you' : '{"city":"Oslo"}'
  return { role: 'assistant', content, reasoning_content: 'engine thoughts' }
}

/** As in llama-server a named choice has no effect; "required" has, and "auto" calls if the last message says so. */
function toolOf(body: Body): string | null {
  const tools = body.tools as { function: { name: string } }[] | undefined
  const wants = body.tool_choice === 'required' || JSON.stringify(body.messages).includes('call a tool')
  const answered = JSON.stringify(body.messages).includes('tool_call_id')
  return wants && !answered ? (tools?.[0]?.function.name ?? null) : null
}

function asksUsage(body: Body): boolean {
  return (body.stream_options as { include_usage?: boolean } | undefined)?.include_usage === true
}
