// Bun's fetch runs 256 requests at a time unless the environment said otherwise when the process began, so `serve` begins again.
// Effects: replaces the running program, under the same process id.

import { assert } from '../base/assert.ts'

/** As many as Bun takes: beyond it the limits are the gateway's own. */
const requestsMax = 65_336
const variable = 'BUN_CONFIG_MAX_HTTP_REQUESTS'

/** fetch would send prompts and keys to whoever these name; an upstream is reached by its own address alone. */
const PROXIES = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'http_proxy', 'https_proxy', 'all_proxy'] as const

export type Program = {
  readonly env: { readonly [name: string]: string | undefined }
  readonly execPath: string
  /** process.argv. */
  readonly argv: readonly string[]
  /** Bun.main: where it begins with `/$bunfs/` the executable holds its own source, which is then no argument. */
  readonly main: string
}

export type Restart = {
  readonly execPath: string
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string>>
}

/** How to begin again; null when the environment is as it must be. */
export function restartFor(program: Program): Restart | null {
  const isSet = program.env[variable] !== undefined
  if (isSet && PROXIES.every(name => program.env[name] === undefined)) return null
  const env: Record<string, string> = { [variable]: String(requestsMax) }
  const dropped: readonly string[] = PROXIES
  for (const [name, value] of Object.entries(program.env)) {
    if (value !== undefined && !dropped.includes(name)) env[name] = value
  }
  const isCompiled = program.main.startsWith('/$bunfs/')
  return { execPath: program.execPath, argv: [program.execPath, ...program.argv.slice(isCompiled ? 2 : 1)], env }
}

/** Does not return when the program begins again. To be called before anything is opened. */
export function ensureMaxHttpRequests(): void {
  const restart = restartFor({ env: process.env, execPath: process.execPath, argv: process.argv, main: Bun.main })
  if (restart === null) return
  // Node's own since 22.15 and Bun's too; the types do not have it.
  const execve: unknown = Reflect.get(process, 'execve')
  assert(typeof execve === 'function', 'this Bun has process.execve')
  Reflect.apply(execve, process, [restart.execPath, restart.argv, restart.env])
}
