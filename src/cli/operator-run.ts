// The run of the operator's commands, with the daemon's client, the configuration and the state directory. Effects:
// loads the modules of the client and of the configuration when a command uses them.

import { join } from 'node:path'
import type { Static, TSchema } from '@sinclair/typebox'
import type { LoadedConfig } from '../config/load.ts'
import { adminSocketName, monitorSocketName } from '../contract/admin/sockets.ts'
import type { Command as AnyCommand, Run as AnyRun, Globals } from '../terminal/command.ts'
import type { Paint } from '../terminal/render.ts'
import type { AdminClient, AdminRequest, createClient } from './daemon-client.ts'
import { resolveStateDir } from './state-dir.ts'

/** Context of one run of one command of the operator's. */
export type Run = AnyRun & {
  readonly stateDir: string
  readonly client: () => AdminClient
  /** Loads the configuration. Faults: config.invalid. */
  readonly config: () => Promise<LoadedConfig>
  /** The path of the configuration file, which may be missing. */
  readonly configFile: () => Promise<string>
  /** Sends a request to the daemon and prints its response, which it returns. */
  readonly show: <S extends TSchema>(
    request: AdminRequest<S>,
    text: (found: Static<S>, paint: Paint) => string,
  ) => Promise<Static<S>>
}

export type Command = AnyCommand<Run>

export function operatorRun(run: AnyRun, { config, stateDir: path }: Globals): Run {
  const { env } = run.io
  const stateDir = resolveStateDir({ path, env })
  const client = () => clientOf(join(stateDir, adminSocketName), lookSocket(join(stateDir, monitorSocketName)))
  return {
    ...run,
    stateDir,
    client,
    config: async () => (await import('../config/load.ts')).loadConfig({ path: config, env }),
    configFile: async () => (await import('../config/load.ts')).configFile({ path: config, env }),
    show: async (request, text) => {
      const found = await client().request(request)
      await run.result(found, text(found, run.paint))
      return found
    },
  }
}

/** Loaded with the first request: commands that need no daemon start without it. */
function clientOf(...sockets: Parameters<typeof createClient>): AdminClient {
  const load = async () => (await import('./daemon-client.ts')).createClient(...sockets)
  return {
    request: async request => (await load()).request(request),
    async *stream(request) {
      yield* (await load()).stream(request)
    },
  }
}

/** Root uses the one socket that always exists. */
function lookSocket(path: string): string | null {
  return process.geteuid?.() === 0 ? null : path
}

/** A path of the admin interface; interpolated parts are encoded. */
export function path(texts: TemplateStringsArray, ...parts: string[]): string {
  return texts
    .map((text, index) => text + (index < parts.length ? encodeURIComponent(parts[index] ?? '') : ''))
    .join('')
}
