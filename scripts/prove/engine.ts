// A scripted model server of this process, in the network namespace that the container shares. Effects: a port.

export type ScriptedEngine = AsyncDisposable & {
  readonly url: string
  readonly promptCount: () => number
  /** Its answers from now on: as they should be, or those of a server that knows no key. */
  answer: 'well' | 'unauthorized'
  /** Nothing listens until `start`. */
  readonly stop: () => Promise<void>
  readonly start: () => void
}

/** Speaks OpenAI's API, and reports its context size as vLLM does. */
export function scriptedEngine(hostname = '127.0.0.1'): ScriptedEngine {
  let prompts = 0
  const serve = (port: number) => Bun.serve({ hostname, port, fetch: answered })
  const answered = async (request: Request): Promise<Response> => {
    if (engine.answer === 'unauthorized') return Response.json({ error: { message: 'no such key' } }, { status: 401 })
    if (new URL(request.url).pathname === '/v1/models') {
      return Response.json({ data: [{ id: 'scripted', owned_by: 'vllm', max_model_len: contextTokens }] })
    }
    prompts += 1
    const choice = { index: 0, message: { role: 'assistant', content: 'OK' }, finish_reason: 'stop' }
    const usage = { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 }
    const { model } = (await request.json()) as { model: string }
    return Response.json({ id: 'c', object: 'chat.completion', created: 1, model, choices: [choice], usage })
  }
  let server = serve(0)
  const { port = 0 } = server
  const engine: ScriptedEngine = {
    url: `http://${hostname.includes(':') ? `[${hostname}]` : hostname}:${port}/v1`,
    promptCount: () => prompts,
    answer: 'well',
    stop: () => server.stop(true),
    start: () => {
      server = serve(port)
    },
    [Symbol.asyncDispose]: () => server.stop(true),
  }
  return engine
}

export const contextTokens = 32_768
