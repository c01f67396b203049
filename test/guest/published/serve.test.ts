// Goal: a published port passes bytes between clients that name it and the program behind it, by its own key; strangers
// get bounded time and connections, and reach no other port.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { type AddressInfo, connect as connectPlain, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import { until } from '../../../scripts/rigs/until.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { listenPublished } from '../../../src/guest/published/serve.ts'
import type { PublishedPort } from '../../../src/guest/published/state.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { spkiDigestOf, spkiOf, spkiSha256Of } from '../../../src/linux/keys/spki.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-published-'))
const [handshakeMs, idleMs] = [400, 1_500]
let server: Server
let ca: string
const programs: Server[] = []
const ports: PublishedPort[] = []

const portOf = (listening: Server) => (listening.address() as AddressInfo).port

/** A program that says its name, then echoes. */
async function program(name: string): Promise<number> {
  const own = createServer(socket => {
    socket.on('error', () => {})
    socket.write(`${name}:`)
    socket.pipe(socket)
  }).listen(0, '127.0.0.1')
  await once(own, 'listening')
  programs.push(own)
  return portOf(own)
}

beforeAll(async () => {
  const names = ['vm.example']
  const authority = await openAuthority({
    kind: 'clients',
    stateDir: dir,
    names,
    nowMs: Date.now,
    random: systemRandom,
  })
  ca = authority.caPem
  for (const name of ['web', 'api', 'bare']) {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const key = privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()
    const host = `${name}.abcd2345.acme.vm.example`
    const chain = name === 'bare' ? null : await authority.certify(spkiOf(key), [host], 30)
    ports.push({
      name,
      host,
      key,
      csr: '',
      egressBytes: 1,
      chain,
      keySha256: spkiSha256Of(spkiOf(key)),
      port: await program(name),
      problem: null,
    })
  }
  server = listenPublished(ports, { listenPort: 0, handshakeMs, idleMs })
  await once(server, 'listening')
})
afterAll(() => {
  for (const listening of [server, ...programs]) listening.close()
  rmSync(dir, { recursive: true, force: true })
})

const hostOf = (name: string) => `${name}.abcd2345.acme.vm.example`

/** Rejects if the server does not prove the name. */
async function dial(name: string, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connect({ host: '127.0.0.1', port: portOf(server), servername: hostOf(name), ca, ...options })
  await once(socket, 'secureConnect')
  socket.on('error', () => {})
  return socket
}

async function textOf(socket: Socket, chars: number): Promise<string> {
  let text = ''
  for await (const piece of socket) {
    text += piece
    if (text.length >= chars) return text
  }
  return text
}

async function closedAfter(socket: Socket): Promise<number> {
  const began = performance.now()
  socket.on('error', () => {})
  socket.resume()
  await once(socket, 'close')
  return performance.now() - began
}

const raw = async (to = server) => {
  const socket = connectPlain(portOf(to), '127.0.0.1')
  await once(socket, 'connect')
  return socket
}

test('goal: each name reaches its own program, by its own key', async () => {
  for (const port of ports.slice(0, 2)) {
    const socket = await dial(port.name)
    const der = socket.getPeerCertificate(true).raw
    expect(toHex(spkiDigestOf(new Uint8Array(der)))).toBe(port.keySha256)
    const body = 'x'.repeat(300_000)
    socket.write(body)
    expect(await textOf(socket, port.name.length + 1 + body.length)).toBe(`${port.name}:${body}`)
    socket.destroy()
  }
})

test('goal: case of the name does not matter; a name without certificate, of another VM, or none is served nothing', async () => {
  const upper = await dial('web', { servername: hostOf('WEB') })
  expect(await textOf(upper, 4)).toBe('web:')
  upper.destroy()
  for (const servername of [hostOf('bare'), 'web.other234.acme.vm.example', `x.${hostOf('web')}`, '']) {
    const failed = await dial('web', { servername, rejectUnauthorized: false }).then(
      () => false,
      () => true,
    )
    expect([servername, failed]).toEqual([servername, true])
  }
  const old = await dial('web', { maxVersion: 'TLSv1.1', minVersion: 'TLSv1' }).catch(() => null)
  expect(old).toBeNull()
})

test('goal: a client that says nothing, or only the beginning of a ClientHello, is closed in time', async () => {
  const pieces = [Buffer.alloc(0), Buffer.from('1603010200010001fc0303', 'hex'), Buffer.from('GET / HTTP/1.1\r\n\r\n')]
  for (const piece of pieces) {
    const socket = await raw()
    socket.write(piece)
    expect(await closedAfter(socket)).toBeLessThan(handshakeMs + 1_000)
  }
  // A record that announces a handshake message of 16 MiB, of which bytes come and come.
  const giant = await raw()
  const record = Buffer.concat([Buffer.from('160301400001ffffff', 'hex'), Buffer.alloc(16_380)])
  const feeding = setInterval(() => giant.writable && giant.write(record), 20)
  expect(await closedAfter(giant)).toBeLessThan(handshakeMs + 1_000)
  clearInterval(feeding)
})

test('goal: an idle connection ends; so does one whose program is gone', async () => {
  const idle = await dial('web')
  expect(await closedAfter(idle)).toBeLessThan(idleMs + 1_500)
  const [, api] = programs
  api?.close()
  const none = await dial('api')
  expect(await closedAfter(none)).toBeLessThan(1_000)
})

test('goal: a program that ends right after a long answer has all of it delivered', async () => {
  const short = createServer(socket => socket.on('error', () => {}).end('x'.repeat(3_000_000))).listen(0, '127.0.0.1')
  await once(short, 'listening')
  programs.push(short)
  const [web] = ports
  if (web === undefined) throw new Error('no port')
  const own = listenPublished([{ ...web, port: portOf(short) }], { listenPort: 0, handshakeMs, idleMs })
  await once(own, 'listening')
  programs.push(own)
  const socket = await dial('web', { port: portOf(own) })
  expect((await textOf(socket, 3_000_000)).length).toBe(3_000_000)
})

test('goal: connections beyond the most are closed, and there is room again once others end', async () => {
  const own = listenPublished(ports, { listenPort: 0, handshakeMs: 60_000, idleMs })
  await once(own, 'listening')
  programs.push(own)
  const held: Socket[] = []
  for (let count = 0; count < 256; count += 1) held.push(await raw(own))
  const next = () => dial('web', { port: portOf(own) }).catch(() => null)
  expect(await next()).toBeNull()
  for (const socket of held) socket.resetAndDestroy()
  // Which side learns of the end first is open.
  await until('a connection', 10_000, async () => (await next()) !== null)
})
