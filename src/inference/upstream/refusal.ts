// Why an upstream refused a request, as far as it matters to the client: too long, or something else. Pure.
//
// Engines report it in three ways: OpenAI's code, llama-server's type with both numbers, and sentences of vLLM and
// SGLang. Only whole numbers of these texts are passed on.

import { Fault } from '../../base/fault.ts'

/** `body`: the upstream's response with status 400, 413 or 422. Fault context_length_exceeded or invalid_request. */
export function refusalFault(body: string): Fault {
  const error = errorOf(body)
  if (!isTooLong(error)) {
    return new Fault(
      'invalid_request',
      'The model does not take this request; compare its fields with the documentation.',
    )
  }
  const prompt = countOf(error.n_prompt_tokens)
  const context = countOf(error.n_ctx)
  const numbers = prompt === null || context === null ? '' : ` The prompt has ${prompt} tokens, the context ${context}.`
  return new Fault(
    'context_length_exceeded',
    `The prompt and the tokens asked for are longer than the context of the model.${numbers}`,
  )
}

function errorOf(body: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(body)
    const error: unknown = Reflect.get(Object(value), 'error')
    return Object(typeof error === 'object' && error !== null ? error : value)
  } catch {
    return {}
  }
}

function isTooLong({ code, type, message }: Readonly<Record<string, unknown>>): boolean {
  if (code === 'context_length_exceeded' || type === 'exceed_context_size_error') return true
  return typeof message === 'string' && /maximum context length|longer than the model's context length/i.test(message)
}

function countOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null
}
