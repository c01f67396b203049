// Settings of clients that use the endpoint: environment variables and configuration files. Pure.

import { harmless } from '../../base/harmless.ts'
import { shellWord } from '../../base/shell-word.ts'

export type ClientSetup = {
  /** Key under `clients` in the JSON document. */
  readonly id: string
  readonly name: string
  /** Environment variables; empty if there are none. */
  readonly env: Readonly<Record<string, string>>
  /** A configuration file, and the text to put into it. */
  readonly file: { readonly path: string; readonly text: string } | null
  /** Remark for people; null if there is none. */
  readonly note: string | null
}

/** Placeholder for the client's gateway key, which the endpoint does not have. */
export const keyPlaceholder = 'KEY'
/** Placeholder for a model, if the gateway's evidence names none. */
export const modelPlaceholder = 'MODEL'

const keyVariable = 'STRONGROOM_GATEWAY_KEY'
const provider = 'strongroom'

/** Returns settings for every supported client. `origin`: the endpoint's origin, without a path. */
export function clientSetups(origin: string, model: string): readonly ClientSetup[] {
  const baseUrl = `${origin}/v1`
  const ownKey = { [keyVariable]: keyPlaceholder }
  return [
    {
      id: 'claude_code',
      name: 'Claude Code',
      env: {
        ANTHROPIC_BASE_URL: origin,
        ANTHROPIC_AUTH_TOKEN: keyPlaceholder,
        ANTHROPIC_MODEL: model,
        ANTHROPIC_DEFAULT_HAIKU_MODEL: model,
      },
      file: null,
      note: null,
    },
    {
      id: 'codex',
      name: 'Codex',
      env: ownKey,
      file: { path: '~/.codex/config.toml', text: codexText(baseUrl, model) },
      note: null,
    },
    {
      id: 'opencode',
      name: 'opencode',
      env: ownKey,
      file: { path: '~/.config/opencode/opencode.json', text: opencodeText(baseUrl, model) },
      note: null,
    },
    {
      id: 'openai_sdk',
      name: "OpenAI's SDKs, and programs that follow them",
      env: { OPENAI_BASE_URL: baseUrl, OPENAI_API_KEY: keyPlaceholder },
      file: null,
      note: null,
    },
    {
      id: 'anthropic_sdk',
      name: "Anthropic's SDKs",
      env: { ANTHROPIC_BASE_URL: origin, ANTHROPIC_API_KEY: keyPlaceholder },
      file: null,
      note: null,
    },
    {
      id: 'cursor',
      name: 'Cursor',
      env: {},
      file: null,
      note: `sends prompts from its maker's servers, which read them and cannot reach ${origin}; use another client`,
    },
  ]
}

/** Returns Codex's TOML. A JSON string is also a TOML basic string. */
function codexText(baseUrl: string, model: string): string {
  return `model = ${JSON.stringify(model)}
model_provider = "${provider}"
[model_providers.${provider}]
name = "Strongroom"
base_url = "${baseUrl}"
env_key = "${keyVariable}"
wire_api = "responses"
`
}

function opencodeText(baseUrl: string, model: string): string {
  const options = { baseURL: baseUrl, apiKey: `{env:${keyVariable}}` }
  const models = { [model]: { name: model, tool_call: true } }
  const own = { npm: '@ai-sdk/openai-compatible', name: 'Strongroom', options, models }
  const chosen = `${provider}/${model}`
  return `${JSON.stringify({ model: chosen, small_model: chosen, provider: { [provider]: own } }, null, 2)}\n`
}

/** Formats a block for each client, with lines to paste into a shell. */
export function setupText(setups: readonly ClientSetup[]): string {
  return harmless(setups.map(blockOf).join('\n'))
}

function blockOf({ name, env, file, note }: ClientSetup): string {
  const lines = [
    ...Object.entries(env).map(([variable, value]) => `  export ${variable}=${shellWord(value)}`),
    ...(file === null
      ? []
      : [
          `  in ${file.path}:`,
          ...file.text
            .trimEnd()
            .split('\n')
            .map(line => `    ${line}`),
        ]),
  ]
  return [`${name}${note === null ? '' : ` ${note}`}`, ...lines].map(line => `${line}\n`).join('')
}
