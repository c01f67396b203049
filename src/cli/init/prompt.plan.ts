// The command that `strongroom init` runs in its instance to send one prompt as the packaged agent does, and what its
// output means. Pure.

import { isRecord } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import { servedModels } from '../../config/checks/worker.ts'
import type { Config } from '../../config/schema.ts'

/** The model that a new instance gets, if the gateway of this host serves it; null otherwise. */
export function promptedModel(config: Config): string | null {
  const { listen, instances } = config
  const [model] = instances.inference_models
  if (listen.inference === '' || instances.inference_base_url !== '' || model === undefined) return null
  return servedModels(config).has(model) ? model : null
}

/** Long enough for a small model on a slow host. */
const promptTimeoutS = 240
const answerTokensMax = 16

/** Words of a shell in the instance: its own key, and the endpoint in it, which verifies the gateway first. */
export function promptCommand(model: string): string {
  const body = JSON.stringify({
    model,
    messages: [{ role: 'user', content: 'Say OK.' }],
    max_tokens: answerTokensMax,
  })
  // Base64 has no character that a shell reads.
  const encoded = Buffer.from(body).toString('base64')
  const curl = `curl --silent --show-error --retry 3 --retry-connrefused --max-time ${promptTimeoutS} --header 'Content-Type: application/json' --header "Authorization: Bearer $OPENAI_API_KEY" --data-binary @- "$OPENAI_BASE_URL/chat/completions"`
  return `echo ${encoded} | base64 --decode | ${curl}`
}

export type PromptVerdict =
  | { readonly ok: true; readonly tokens: number | null }
  | { readonly ok: false; readonly why: string }

const shownCharsMax = 400

/** Reads what the command printed: a completion, or the error document of the endpoint or gateway. */
export function promptVerdict(output: string): PromptVerdict {
  const value: unknown = resultOr(() => JSON.parse(output), null)
  if (isRecord(value) && Array.isArray(value.choices) && value.choices.length > 0) {
    const { usage } = value
    const tokens = isRecord(usage) && typeof usage.completion_tokens === 'number' ? usage.completion_tokens : null
    return { ok: true, tokens }
  }
  const error = isRecord(value) ? value.error : null
  const message = isRecord(error) && typeof error.message === 'string' ? error.message : output.trim()
  return { ok: false, why: message.slice(0, shownCharsMax) || 'no output' }
}
