// The endpoint of an instance's gateway over a directory of its own, in this process, and what a claim would have written for it. Effects: files, a port.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../../src/base/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import type { InferenceGateway } from '../../../src/contract/vm/inference-gateway.ts'
import { gatewayCommand } from '../../../src/guest/gateway/command.ts'
import type { GatewaySettings } from '../../../src/guest/gateway/expectation.codec.ts'
import { serveEndpoint } from '../../../src/guest/gateway/serve.ts'
import { type GuestPaths, guestPaths } from '../../../src/guest/paths.ts'

export type InstanceEndpoint = AsyncDisposable & {
  readonly url: string
  readonly paths: GuestPaths
  readonly log: readonly string[]
  /** What the claim says, in the place of what it said. */
  readonly claim: (settings: GatewaySettings) => void
  /** strongroom-gateway, with this on its standard input. */
  readonly command: (argv: readonly string[], input?: string) => Promise<{ exitCode: number; text: string }>
  /** POST of a prompt to this path. */
  readonly prompt: (path?: string, changes?: RequestInit) => Promise<{ status: number; headers: Headers; text: string }>
}

/** In every prompt; no byte of it may be seen where it must not go. */
export const canary = 'canary-of-the-prompt'

export type EndpointOf = {
  readonly baseUrl: string
  readonly gateway: InferenceGateway
  readonly key?: string
  readonly platform?: GatewaySettings['platform']
}

export async function startEndpoint({ baseUrl, gateway, key = 'gw_x_y', platform = 'none' }: EndpointOf) {
  const root = mkdtempSync(join(tmpdir(), 'srt-endpoint-'))
  const paths = guestPaths(root)
  mkdirSync(paths.ownGatewayDir, { recursive: true })
  const claim = (settings: GatewaySettings) => writeFileSync(paths.gatewaySettings, JSON.stringify(settings))
  claim({ baseUrl, gateway, platform })
  const lines: string[] = []
  const log = createLogger({ level: 'info', sink: line => void lines.push(line), nowMs: systemClock.nowMs })
  const served = serveEndpoint({ paths, port: 0, log })
  const url = `http://127.0.0.1:${served.port}`
  const endpoint: InstanceEndpoint = {
    url,
    paths,
    claim,
    log: lines,
    command: async (argv, input = '') => {
      let text = ''
      const write = (more: string) => {
        text += more
      }
      const readInput = async () => new TextEncoder().encode(input)
      return { exitCode: await gatewayCommand(argv, { paths, readInput, write, complain: write }), text }
    },
    prompt: async (path = '/v1/chat/completions', changes = {}) => {
      const response = await fetch(`${url}${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'm', max_tokens: 16, messages: [{ role: 'user', content: canary }] }),
        ...changes,
      })
      return { status: response.status, headers: response.headers, text: await response.text() }
    },
    [Symbol.asyncDispose]: async () => {
      await served[Symbol.asyncDispose]()
      rmSync(root, { recursive: true, force: true })
    },
  }
  return endpoint
}
