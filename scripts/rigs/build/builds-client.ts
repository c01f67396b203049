// A customer of service C in end-to-end tests: one organization, one key, builds and their event streams. Effects:
// those of an appliance.

import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { BuildEvent } from '../../../src/contract/http/build.ts'
import type { BuildAccepted, BuildRecord } from '../../../src/contract/http/build-api.ts'
import { type Appliance, builtImage, createAppliance, imageDir } from '../appliance.ts'

const url = 'https://127.0.0.1:8443'

/** An event as a client gets it. */
export type SeenEvent = { readonly id: number; readonly data: BuildEvent }

export type BuildsClient = {
  readonly ask: (path: string, init?: RequestInit) => Promise<Response>
  /** `below`: of a reserved VM, `/vm/ID`. */
  readonly submit: (body: object, below?: string) => Promise<{ readonly status: number } & BuildAccepted>
  readonly record: (id: string) => Promise<BuildRecord>
  /** Events after `afterId`, one by one, until the service, the caller or a broken connection ends the stream. */
  readonly stream: (id: string, afterId?: number) => AsyncGenerator<SeenEvent, void, undefined>
  /** The data of every event until the stream closes. */
  readonly events: (id: string) => Promise<BuildEvent[]>
  /** The result archive. Throws when there is none. */
  readonly result: (id: string) => Promise<Buffer>
}

export type BuildsAppliance = { readonly appliance: Appliance; readonly builder: string }

/** Not started yet. `settings`: further lines of the table `builds`; `tables`: of others. */
export async function createBuildsAppliance(
  settings = '',
  tables: Readonly<Record<string, string>> = {},
): Promise<BuildsAppliance> {
  const builder = await builtImage('builder')
  const lines = `image_dir = ${JSON.stringify(builder)}\nmemory_mib = 2048\nscratch_gib = 4\n${settings}`
  const listen = { ...tables, listen: 'builds = "127.0.0.1:8443"' }
  return { appliance: await createAppliance(lines, 'builds', await imageDir(), '', listen), builder }
}

/** Makes the organization and its key. */
export async function createBuildsClient(appliance: Appliance): Promise<BuildsClient> {
  await appliance.cli('org', 'create', 'acme')
  const { key } = await appliance.admin<{ key: string }>('key', 'create', 'acme')
  const tls = { ca: readFileSync(join(appliance.stateDir, 'ca/ca.pem'), 'utf8') }
  const ask = (path: string, init: RequestInit = {}) =>
    fetch(url + path, { ...init, tls, headers: { Authorization: `Bearer ${key}`, ...init.headers } })
  const stream: BuildsClient['stream'] = async function* (id, afterId = 0) {
    const leave = new AbortController()
    try {
      const headers = afterId === 0 ? {} : { 'Last-Event-ID': String(afterId) }
      const response = await ask(`/build/${id}/events`, { headers, signal: leave.signal })
      if (!response.ok) throw new Error(`events: ${response.status} ${await response.text()}`)
      let text = ''
      for await (const chunk of response.body ?? []) {
        text += Buffer.from(chunk).toString('utf8')
        const parts = text.split('\n\n')
        text = parts.pop() ?? ''
        yield* parts.flatMap(seenIn)
      }
    } finally {
      leave.abort()
    }
  }
  return {
    ask,
    submit: async (body, below = '') => {
      const response = await ask(`${below}/build`, { method: 'POST', body: JSON.stringify(body) })
      return { status: response.status, ...((await response.json()) as BuildAccepted) }
    },
    record: async id => (await (await ask(`/build/${id}`)).json()) as BuildRecord,
    stream,
    events: async id => (await Array.fromAsync(stream(id))).map(event => event.data),
    result: async id => {
      const response = await ask(`/build/${id}/result`)
      if (!response.ok) throw new Error(`result: ${response.status} ${await response.text()}`)
      return Buffer.from(await response.arrayBuffer())
    },
  }
}

/** None for a ping or the line `retry`. */
function seenIn(block: string): SeenEvent[] {
  const data = /^data: ([^\n]*)$/m.exec(block)?.[1]
  const id = /^id: ([0-9]+)$/m.exec(block)?.[1]
  return data === undefined ? [] : [{ id: Number(id), data: JSON.parse(data) as BuildEvent }]
}

export const messageOf = (event: BuildEvent): string => ('msg' in event ? event.msg : '')

/** '' if `strongroom verify build` passes; else its exit code and output. `asked`: options that state the request. */
export async function verifyResult(
  { appliance, builder }: BuildsAppliance,
  { archive, nonce, asked }: { readonly archive: string; readonly nonce: string; readonly asked: readonly string[] },
): Promise<string> {
  const rootPem = join(appliance.stateDir, 'simulator/root.pem')
  const { exitCode, stdout, stderr } = await appliance.cli(
    ...['verify', 'build', archive, '--nonce', nonce, '--trust-simulated-root', rootPem],
    ...['--image', builder, '--own-image', '--json', ...asked],
  )
  return exitCode === 0 ? '' : `${exitCode}: ${stdout}${stderr}`
}

/** Unpacks a result into a new directory; returns its one top-level directory, named after the project. */
export function unpackResult(directory: string, archive: Uint8Array): string {
  mkdirSync(directory)
  const { exitCode, stderr } = Bun.spawnSync(['tar', '-xz', '-C', directory], { stdin: archive })
  if (exitCode !== 0) throw new Error(`tar: ${stderr}`)
  return join(directory, readdirSync(directory)[0] ?? '')
}
