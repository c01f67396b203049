// How each agent of the command line is configured for a gateway, and started. Effects: writes configuration.

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { KEY, MODEL } from '../gateway/server.ts'
import type { AgentCli } from './cli.ts'

export type Program = {
  readonly name: AgentCli
  /** Writes its configuration below `home`; returns its environment. */
  readonly configure: (home: string, url: string, more?: Surroundings) => Readonly<Record<string, string>>
  /** The first turn, or the next one of the same session. */
  readonly argv: (prompt: string, turn: 'first' | 'next') => readonly string[]
}

/** Beside the defaults. */
export type Surroundings = {
  /** Command lines of MCP servers, by name. */
  readonly mcp?: Readonly<Record<string, readonly string[]>>
  /** Lines in front of `config.toml` of Codex. */
  readonly codex?: readonly string[]
  /** Name of the provider in `config.toml` of Codex; default: Gateway. */
  readonly provider?: string
  /** Default: the model that the gateway has. */
  readonly model?: string
}

export const PROGRAMS = {
  'claude-code': {
    name: 'claude-code',
    configure: (home, url, { mcp = {}, model = MODEL } = {}) => {
      writeFileSync(join(home, 'mcp.json'), JSON.stringify({ mcpServers: mapped(mcp, commandAndArgs) }))
      return {
        ANTHROPIC_BASE_URL: url,
        ANTHROPIC_AUTH_TOKEN: KEY,
        ANTHROPIC_MODEL: model,
        ANTHROPIC_DEFAULT_HAIKU_MODEL: model,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        DISABLE_TELEMETRY: '1',
        DISABLE_AUTOUPDATER: '1',
      }
    },
    argv: (prompt, turn) => [...(turn === 'next' ? ['--continue'] : []), '-p', prompt, '--allowedTools', 'Bash'],
  },
  codex: {
    name: 'codex',
    configure: (home, url, more = {}) => {
      mkdirSync(join(home, '.codex'), { recursive: true })
      writeFileSync(join(home, '.codex/config.toml'), codexConfig(url, more))
      return { GATEWAY_KEY: KEY }
    },
    argv: (prompt, turn) => ['exec', '--skip-git-repo-check', ...(turn === 'next' ? ['resume', '--last'] : []), prompt],
  },
  opencode: {
    name: 'opencode',
    configure: (home, url, { mcp = {}, model = MODEL } = {}) => {
      mkdirSync(join(home, '.config/opencode'), { recursive: true })
      writeFileSync(join(home, '.config/opencode/opencode.json'), opencodeConfig(url, { mcp, model }))
      return { GATEWAY_KEY: KEY, OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1', ...NO_REGISTRY }
    },
    argv: (prompt, turn) => ['run', ...(turn === 'next' ? ['--continue'] : []), prompt],
  },
} as const satisfies Record<AgentCli, Program>

/** opencode installs a package of plugins at each start, and goes on without it. Nothing listens on this port. */
const NO_REGISTRY = { NPM_CONFIG_REGISTRY: 'http://127.0.0.1:9/', NPM_CONFIG_FETCH_RETRIES: '0' }

/** Against a gateway in a VM: its authority, as Node and Bun read it, and Rust. */
export function trust(): Record<string, string> {
  const file = process.env.NODE_EXTRA_CA_CERTS
  return file === undefined ? {} : { NODE_EXTRA_CA_CERTS: file, SSL_CERT_FILE: file, CODEX_CA_CERTIFICATE: file }
}

function mapped<From, To>(table: Readonly<Record<string, From>>, of: (row: From) => To): Record<string, To> {
  return Object.fromEntries(Object.entries(table).map(([name, row]) => [name, of(row)]))
}

function commandAndArgs([command = '', ...args]: readonly string[]): object {
  return { type: 'stdio', command, args }
}

function codexConfig(url: string, { mcp = {}, codex = [], provider = 'Gateway', model = MODEL }: Surroundings): string {
  const servers = Object.entries(mcp).map(
    ([name, [command = '', ...args]]) =>
      `[mcp_servers.${name}]\ncommand = ${JSON.stringify(command)}\nargs = ${JSON.stringify(args)}\n`,
  )
  return `${codex.map(line => `${line}\n`).join('')}model = "${model}"
model_provider = "gateway"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.gateway]
name = "${provider}"
base_url = "${url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
${servers.join('')}`
}

function opencodeConfig(url: string, { mcp: servers = {}, model: id = MODEL }: Surroundings): string {
  const options = { baseURL: `${url}/v1`, apiKey: '{env:GATEWAY_KEY}' }
  const models = { [id]: { name: id, tool_call: true } }
  const provider = { gateway: { npm: '@ai-sdk/openai-compatible', name: 'Gateway', options, models } }
  const model = `gateway/${id}`
  const mcp = mapped(servers, command => ({ type: 'local', command, enabled: true }))
  return JSON.stringify({ autoupdate: false, share: 'disabled', model, small_model: model, provider, mcp })
}
