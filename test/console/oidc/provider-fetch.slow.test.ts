// Goal: an identity provider that hangs, dribbles, compresses or shows another certificate costs the console a bounded
// time and nothing else.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createProviderFetch, ProviderFailure, readOperatorFile } from '../../../src/console/oidc/provider-fetch.ts'
import { fetchDirectly } from '../../../src/linux/net/outgoing.ts'
import { startProvider } from '../../rigs/console/provider.ts'

const timeoutMs = 500

test('goal: each fault ends as a failure that names the origin', async () => {
  await using provider = await startProvider()
  const { origin } = new URL(provider.issuer)
  const ask = createProviderFetch({ caFile: provider.config.ca_file, send: fetchDirectly, timeoutMs })
  const failureOf = async (path: string, fetch = ask) => {
    const thrown: unknown = await fetch(`${origin}${path}`, { method: 'GET' }).catch((error: unknown) => error)
    if (!(thrown instanceof ProviderFailure)) throw new Error('it did not fail')
    return thrown.message
  }
  const never = new Promise<Response>(() => {})
  const dribble = new ReadableStream({
    pull: async controller => {
      controller.enqueue(Buffer.from(' '))
      await Bun.sleep(20)
    },
  })
  provider.self.instead.set('/hangs', () => never)
  provider.self.instead.set('/dribbles', () => new Response(dribble))
  provider.self.instead.set('/large', () => new Response(new Uint8Array(2_097_153)))
  provider.self.instead.set('/moved', () => Response.redirect(`${origin}/realm/keys`, 307))
  provider.self.instead.set('/empty', () => new Response(null, { status: 204 }))
  expect(await failureOf('/hangs')).toBe(`${origin}: no answer within 500 ms`)
  expect(await failureOf('/dribbles')).toBe(`${origin}: no answer within 500 ms`)
  expect(await failureOf('/large')).toBe(`${origin} answers with more than 2097152 bytes`)
  expect(await failureOf('/moved')).toBe(`${origin} redirects, which is refused`)
  expect(await failureOf('/empty')).toBe(`${origin} answers with status 204`)
  expect(provider.requests).not.toContain('/realm/keys')
  expect(await failureOf('/realm/keys', createProviderFetch({ caFile: '', send: fetchDirectly, timeoutMs }))).toContain(
    `${origin}: `,
  )
  expect(
    await failureOf('/realm/keys', createProviderFetch({ caFile: '/nowhere', send: fetchDirectly, timeoutMs })),
  ).toContain('console.oidc.ca_file')
})

test('goal: a FIFO or a folder instead of a file of the configuration is named, and blocks nothing', () => {
  const folder = mkdtempSync(join(tmpdir(), 'strongroom-fifo-'))
  const fifo = join(folder, 'fifo')
  expect(Bun.spawnSync(['mkfifo', fifo]).exitCode).toBe(0)
  try {
    for (const path of [fifo, folder]) {
      expect(() => readOperatorFile('console.oidc.ca_file', path)).toThrow(
        `console.oidc.ca_file: ${path} cannot be read: it is no regular file`,
      )
    }
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test('goal: a compressed body stays as it is, so that its size is what is counted', async () => {
  await using provider = await startProvider()
  const packed = Bun.gzipSync(new Uint8Array(50_000_000))
  const asked: (string | null)[] = []
  provider.self.instead.set('/packed', request => {
    asked.push(request.headers.get('accept-encoding'))
    return new Response(packed, { headers: { 'content-encoding': 'gzip' } })
  })
  const { origin } = new URL(provider.issuer)
  const response = await createProviderFetch({ caFile: provider.config.ca_file, send: fetchDirectly })(
    `${origin}/packed`,
    { method: 'GET' },
  )
  expect([(await response.arrayBuffer()).byteLength, asked]).toEqual([packed.length, ['identity']])
})
