// Goal: the package, installed from its tarball, lets the official OpenAI client speak with an attested gateway in Bun
// and in Node, and with nobody else.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildVerifierPackage } from '../../../scripts/build/verifier-package.ts'
import { runCommand } from '../../../scripts/lib/command.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { clearRig, newNonce } from '../../../scripts/rigs/gateway/attestation.ts'
import {
  type AttestedGateway,
  attestedOptions,
  startAttestedGateway,
} from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { KEY } from '../../../scripts/rigs/gateway/server.ts'
import { viewOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { toHex } from '../../../src/base/bytes.ts'
import type { AttestationResponse } from '../../../src/contract/http/attestation.ts'
import { root } from '../../meta/tree.ts'
import { pack } from '../../rigs/built/package.ts'
import {
  type ClientRuntime,
  type PackageClient,
  type PackageProject,
  preparePackage,
} from '../../rigs/package/package-project.ts'
import { nodeMajor } from '../../rigs/portable/runtimes.ts'
import { httpResponse, newCertificate, type Relay, startRecorder, startRelay } from '../../rigs/tls-peers.ts'

let project: PackageProject
let upstream: TestUpstream
let options: Awaited<ReturnType<typeof attestedOptions>>
const undo = new AsyncDisposableStack()
beforeAll(async () => {
  undo.defer(clearRig)
  project = undo.use(await preparePackage())
  upstream = await startUpstream()
  undo.defer(upstream.stop)
  options = await attestedOptions()
}, 600_000)
afterAll(() => undo.disposeAsync())

describe('the tarball', () => {
  test('goal: it holds what it needs and nothing else', () => {
    const entries = ['index', 'report', 'evidence']
    const types = entries.flatMap(name => [`${name}.d.ts`, `${name}.d.cts`])
    const web = entries.map(name => `web/${name}.js`)
    const node = entries.flatMap(name => [`node/${name}.js`, `node/${name}.cjs`])
    const others = ['LICENSE', 'LICENSES.txt', 'README.md', 'package.json']
    const chunks = /^(?:web\/chunk-[a-z0-9]{8}\.js|node\/chunk-[\w-]{8}\.cjs)$/
    expect(project.packed.filter(name => !chunks.test(name))).toEqual([...types, ...web, ...node, ...others].sort())
    expect(project.packed.filter(name => chunks.test(name))).toHaveLength(4)
  })

  test('goal: its types stand alone: with those of Node or of pages, checked to the last line, and the README is right', async () => {
    const example = /```ts\n([\s\S]*?)```/.exec(readFileSync(join(project.folder, 'README.md'), 'utf8'))?.[1]
    writeFileSync(join(project.folder, 'example.ts'), example ?? '')
    const caller = [
      "import { type AttestedFetch, attestedFetch, type Evidence, KeyChangedError, VerificationError } from '@strongroom/verifier'",
      "const fetch: AttestedFetch = attestedFetch({ url: 'https://a', policy: '{}', pins: { allowlist: 'any' } })",
      'export const status: number = (await fetch(new URL("https://a"))).status',
      'export const evidence: Evidence = await fetch.verify({ signal: AbortSignal.timeout(1) })',
      'export const measurement: Uint8Array | undefined = evidence.verdict.receipts[0]?.verdict.report?.measurement',
      'export const failed = (error: unknown) => (error instanceof VerificationError ? error.failed.map(one => one.name) : [])',
      'export const cause = (error: KeyChangedError) => error.cause',
    ]
    writeFileSync(join(project.folder, 'caller.ts'), caller.join('\n'))
    symlinkSync(join(root, 'node_modules/@types'), join(project.folder, 'node_modules/@types'))
    symlinkSync(join(root, 'node_modules/undici-types'), join(project.folder, 'node_modules/undici-types'))
    const dom = ['ES2023', 'DOM', 'DOM.Iterable', 'DOM.AsyncIterable']
    writeFileSync(join(project.folder, 'wrong.ts'), `${caller.join('\n')}\nattestedFetch({ url: 'https://a' })`)
    // The check can fail, and finds nothing else.
    const files = ['caller.ts', 'wrong.ts']
    const faults = await compile({ lib: dom, types: [], files })
    expect(faults).toContain("'policy' is missing")
    expect(faults.match(/^\S.*: error TS\d+/gm)).toEqual([expect.stringContaining('wrong.ts(')])
    expect(await compile({ lib: ['ES2023'], types: ['node'], files: ['caller.ts'] })).toBe('')
    expect(await compile({ lib: dom, types: ['node'], files: ['example.ts'] })).toBe('')
  }, 300_000)

  const isBuiltOnce = skipUnless(runsAll, 'the package is built a second time under scripts/test --all')
  test.skipIf(isBuiltOnce)(
    'goal: the same sources give the same bytes',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'strongroom-package-'))
      try {
        await buildVerifierPackage(join(folder, 'again'))
        const { tarball } = await pack(join(folder, 'again'), folder)
        expect(Buffer.from(await Bun.file(tarball).bytes()).equals(project.tarball)).toBe(true)
      } finally {
        rmSync(folder, { recursive: true, force: true })
      }
    },
    300_000,
  )
})

type Program = { readonly lib: readonly string[]; readonly types: readonly string[]; readonly files: readonly string[] }

/** Compiler output for a program in the project. */
async function compile({ lib, types, files }: Program): Promise<string> {
  const compilerOptions = {
    lib,
    types,
    strict: true,
    noEmit: true,
    target: 'ES2023',
    module: 'nodenext',
    skipLibCheck: false,
    exactOptionalPropertyTypes: true,
  }
  writeFileSync(join(project.folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }))
  const argv = [process.execPath, join(root, 'node_modules/typescript/bin/tsc'), '--project', project.folder]
  return (await runCommand([...argv, '--pretty', 'false'], { timeoutMs: 240_000 })).output
}

/** A byte every few milliseconds, for as long as somebody listens. */
async function* trickle(head: string): AsyncGenerator<string> {
  yield head
  while (true) {
    await Bun.sleep(20)
    yield 'x'
  }
}

/** Answer of a gateway without a VM of its own to GET /workload.json. */
const noWorkload = httpResponse('{}', ['content-type: application/json'], '404 Not Found')

type Met = AsyncDisposable & {
  readonly relay: Relay
  readonly gateway: AttestedGateway
  readonly client: PackageClient
}

const noNode = skipUnless(nodeMajor() >= 20, 'needs Node 20 or later')
const runtimes: readonly (readonly [ClientRuntime, boolean])[] = [
  ['bun', false],
  ['node', noNode],
]

describe.each(runtimes)('%s', (runtime, isLeftOut) => {
  const inRuntime = test.skipIf(isLeftOut)

  /** One process for all tests: it ends with a good exit status after whatever they did. */
  let client: PackageClient | null = null
  afterAll(() => client?.[Symbol.asyncDispose]())

  /** Another client in it, which has verified nothing so far, and a gateway behind a network that a test can change. */
  async function meet(changes: Record<string, unknown> = {}): Promise<Met> {
    const stack = new AsyncDisposableStack()
    const gateway = stack.use(await startAttestedGateway(upstream))
    const relay = stack.use(await startRelay(gateway.port))
    client ??= project.start(runtime)
    await client.ask({ do: 'open', key: KEY, options: { ...options, url: relay.url, ...changes } })
    return { relay, gateway, client, [Symbol.asyncDispose]: () => stack.disposeAsync() }
  }

  inRuntime('goal: models, chat, streams and tool calls work, sealed and not', async () => {
    for (const encryption of ['required', 'off']) {
      await using met = await meet({ encryption })
      const { client, gateway } = met
      expect(await client.ask({ do: 'evidence' })).toEqual({ value: null })
      expect(await client.ask({ do: 'models' })).toEqual({ value: ['tiny'] })
      expect(await client.ask({ do: 'chat' })).toEqual({ value: 'Grüße 👋 you' })
      const { value } = (await client.ask({ do: 'stream' })) as { value: { text: string; pieces: number } }
      expect([value.text, value.pieces > 1]).toEqual(['Grüße 👋 you', true])
      expect(await client.ask({ do: 'tools' })).toEqual({ value: ['weather'] })
      expect(await client.ask({ do: 'streamedTools' })).toEqual({ value: ['weather'] })
      expect(await client.ask({ do: 'leave' })).toEqual({ value: 'left' })
      // The client's own errors stay its own.
      expect((await client.ask({ do: 'unknownModel' })).error).toMatchObject({ names: ['NotFoundError'], status: 404 })
      expect(await client.ask({ do: 'evidence' })).toMatchObject({ value: { simulated: true } })
      expect(gateway.encryptedCount() > 0).toBe(encryption === 'required')
    }
  })

  inRuntime('goal: a gateway that starts again with new keys is verified again, and requests go on', async () => {
    for (const encryption of ['required', 'off']) {
      await using met = await meet({ encryption })
      const { client, relay, gateway } = met
      const before = await client.ask({ do: 'verify' })
      expect(await client.ask({ do: 'chat' })).toEqual({ value: 'Grüße 👋 you' })
      await using next = await startAttestedGateway(upstream)
      relay.lead(next.port)
      expect(await client.ask({ do: 'chat' })).toEqual({ value: 'Grüße 👋 you' })
      const after = (await client.ask({ do: 'evidence' })) as { value: { tlsSpkiDigest: string } }
      expect(after).not.toEqual(before)
      expect(after.value.tlsSpkiDigest).toBe(toHex(next.tlsSpkiDigest))
      expect([gateway.nonceCount(), next.nonceCount()]).toEqual([1, 1])
    }
  })

  inRuntime(
    'goal: a POST whose connection is cut while it is carried out is sent once, and the error says that it may have been carried out',
    async () => {
      await using met = await meet({ encryption: 'off' })
      const { client, relay, gateway } = met
      const arrived: string[] = []
      await using slow = await startRecorder(gateway.pair, async head => {
        const path = /^GET (\/attestation\S*) /.exec(head)?.[1]
        if (head.startsWith('GET /workload.json')) return noWorkload
        if (path !== undefined) {
          const response = await fetch(`${gateway.url}${path}`, { tls: { ca: options.ca } })
          return httpResponse(new Uint8Array(await response.arrayBuffer()), ['content-type: application/json'])
        }
        arrived.push(head.split(' ')[0] ?? '')
        if (arrived.length === 1) return httpResponse('{}', ['content-type: application/json'])
        // The work has begun; the answer never comes.
        setTimeout(() => relay.lead(slow.port), 400)
        return null
      })
      relay.lead(slow.port)
      const ask = (method: string, body?: string) =>
        client.ask({ do: 'raw', url: `${relay.url}/v1/x`, init: { method, ...(body === undefined ? {} : { body }) } })
      expect(await ask('POST', '{}')).toMatchObject({ value: { status: 200 } })
      const { error } = await ask('POST', '{}')
      expect([arrived, error?.names[0]]).toEqual([['POST', 'POST'], 'ConnectionError'])
      expect(error?.messages[0]).toContain('may have been carried out')
      expect(error?.messages[0]).toContain('What to do: ')
    },
  )

  inRuntime('goal: new keys behind the same TLS key are found, verified and used', async () => {
    await using met = await meet()
    const { client, relay, gateway } = met
    expect(await client.ask({ do: 'chat' })).toEqual({ value: 'Grüße 👋 you' })
    await using next = await startAttestedGateway(upstream, { pair: gateway.pair })
    relay.lead(next.port)
    expect(await client.ask({ do: 'chat' })).toEqual({ value: 'Grüße 👋 you' })
    expect(next.nonceCount()).toBe(1)
  })

  inRuntime(
    'goal: a man in the middle with a good certificate gets no byte of a request, evidence forwarded or not',
    async () => {
      for (const encryption of ['required', 'off']) {
        await using met = await meet({ encryption })
        const { client, relay, gateway } = met
        expect(await client.ask({ do: 'chat' })).toEqual({ value: 'Grüße 👋 you' })
        const ca = options.ca
        await using middle = await startRecorder(await newCertificate(), async head => {
          const path = /^GET (\/attestation\S*) /.exec(head)?.[1]
          if (head.startsWith('GET /workload.json')) return noWorkload
          if (path === undefined) return httpResponse('{"choices":[]}', ['content-type: application/json'])
          const response = await fetch(`${gateway.url}${path}`, { tls: { ca } })
          return httpResponse(new Uint8Array(await response.arrayBuffer()), ['content-type: application/json'])
        })
        relay.lead(middle.port)
        const { error } = await client.ask({ do: 'chat' })
        expect(error?.names).toEqual(['APIConnectionError', 'KeyChangedError', 'VerificationError'])
        expect(error?.failed).toEqual(['tls-binding'])
        expect((await client.ask({ do: 'stream' })).error?.names).toEqual(['APIConnectionError', 'VerificationError'])
        // Asked for evidence it was, and for nothing else; no key came with it.
        const asked = [...middle.text().matchAll(/^[A-Z]+ \/[a-z0-9/]*/gm)].map(String)
        expect(asked).toEqual(['GET /attestation', 'GET /workload', 'GET /attestation', 'GET /workload'])
        expect(middle.text()).not.toContain(KEY)
        relay.lead(gateway.port)
        expect(await client.ask({ do: 'chat' })).toEqual({ value: 'Grüße 👋 you' })
      }
    },
  )

  inRuntime('goal: evidence that comes byte by byte, or without end, is given up in time and size', async () => {
    await using met = await meet({ evidenceTimeoutMs: 1_000 })
    const { client, relay } = met
    const head = 'HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n'
    await using trickling = await startRecorder(await newCertificate(), () => trickle(head))
    relay.lead(trickling.port)
    const late = await client.ask({ do: 'chat' })
    expect([late.error?.names.slice(0, 2), late.error?.messages.join(' ')]).toEqual([
      ...[['APIConnectionError', 'EvidenceError'], expect.stringContaining('nothing within 1000 ms')],
    ])
    // The connection is ended, too.
    await trickling.ended(1)
    const endless = `HTTP/1.1 200 OK\r\n\r\n${'x'.repeat(3_000_000)}`
    await using patient = await meet()
    await using flooding = await startRecorder(await newCertificate(), () => endless)
    patient.relay.lead(flooding.port)
    const large = await patient.client.ask({ do: 'chat' })
    expect(large.error?.messages.join(' ')).toContain('is larger than 2097152 bytes')
  })

  inRuntime('goal: receipts that were recorded before are refused, by the nonce', async () => {
    await using met = await meet()
    const { client, relay, gateway } = met
    const response = await fetch(`${gateway.url}/attestation?nonce=${'A'.repeat(43)}`, { tls: { ca: options.ca } })
    const recorded = new Uint8Array(await response.arrayBuffer())
    // Even by the holder of the attested TLS key.
    await using replay = await startRecorder(gateway.pair, head =>
      head.startsWith('GET /attestation') ? httpResponse(recorded, ['content-type: application/json']) : noWorkload,
    )
    relay.lead(replay.port)
    const { error } = await client.ask({ do: 'chat' })
    expect([error?.names, error?.failed]).toEqual([['APIConnectionError', 'VerificationError'], ['attestation-nonce']])
    expect(replay.text()).not.toContain(KEY)
  })

  inRuntime('goal: an encryption key that the hardware does not vouch for is refused', async () => {
    await using met = await meet()
    const { client, relay, gateway } = met
    await using other = await startAttestedGateway(upstream)
    await using swapping = await startRecorder(gateway.pair, async head => {
      const path = /^GET (\/attestation\S*) /.exec(head)?.[1]
      if (path === undefined) return noWorkload
      const ask = async (url: string) =>
        (await (await fetch(url, { tls: { ca: options.ca } })).json()) as AttestationResponse
      const document = await ask(`${gateway.url}${path}`)
      const { receipts } = await ask(`${other.url}/attestation?nonce=${newNonce()}`)
      for (const item of document.receipts) {
        const { x25519, mlkem768 } = receipts[0].receipt.keys
        item.receipt.keys = { ...item.receipt.keys, x25519, mlkem768 }
      }
      return httpResponse(JSON.stringify(document), ['content-type: application/json'])
    })
    relay.lead(swapping.port)
    const { error } = await client.ask({ do: 'chat' })
    expect(error?.names).toEqual(['APIConnectionError', 'VerificationError'])
    expect(error?.failed).toContain('gateway/evidence')
    expect(swapping.text()).not.toContain(KEY)
  })

  inRuntime('goal: another measurement than the pinned one is refused, by its name', async () => {
    await using met = await meet({ policy: { ...options.policy, measurements: ['07'.repeat(48)] } })
    const { error } = await met.client.ask({ do: 'verify' })
    expect([error?.names, error?.failed]).toEqual([
      ['VerificationError'],
      expect.arrayContaining(['gateway/measurement']),
    ])
    expect((await met.client.ask({ do: 'chat' })).error?.names).toEqual(['APIConnectionError', 'VerificationError'])
    const { running, ended } = await viewOf(met.gateway.gateway)
    expect([running, ended]).toEqual([0, {}])
  })

  inRuntime(
    'goal: without the authority of its certificate the gateway is nobody, unless the attested key alone is to count',
    async () => {
      await using met = await meet({ ca: undefined })
      const { error } = await met.client.ask({ do: 'chat' })
      expect(error?.names.slice(0, 2)).toEqual(['APIConnectionError', 'EvidenceError'])
      await using any = await meet({ ca: 'any' })
      expect(await any.client.ask({ do: 'chat' })).toEqual({ value: 'Grüße 👋 you' })
      await using middle = await startRecorder(await newCertificate(), () => httpResponse('{}'))
      any.relay.lead(middle.port)
      expect((await any.client.ask({ do: 'chat' })).error?.names.slice(0, 2)).toEqual([
        ...['APIConnectionError', 'KeyChangedError'],
      ])
      expect(middle.text()).not.toContain(KEY)
    },
  )
})

// Goal: a runtime that makes connections by itself, past the agent that pins, gets an error and sends nothing.
// Only Node lets a program change what a built-in module exports.
test.skipIf(noNode)('connections past the agent, in Node', async () => {
  const certificate = await newCertificate()
  await using server = await startRecorder(certificate, () => httpResponse('{}'))
  const program = [
    "import https from 'node:https'",
    "import { syncBuiltinESMExports } from 'node:module'",
    'const { request } = https',
    'https.request = ({ agent, ...options }) => request({ ...options, rejectUnauthorized: false })',
    'syncBuiltinESMExports()',
    "await import('./package-main.mjs')",
  ]
  writeFileSync(join(project.folder, 'detour.mjs'), program.join('\n'))
  await using client = project.start('node', 'detour.mjs')
  await client.ask({ do: 'open', key: KEY, options: { ...options, url: server.url, connectTimeoutMs: 300 } })
  const { error } = await client.ask({ do: 'chat' })
  expect([error?.names, error?.messages.join(' ')]).toEqual([
    ...[['APIConnectionError', 'EvidenceError', 'Error'], expect.stringContaining('an agent of node:https')],
  ])
  expect(server.text()).toBe('')
})
