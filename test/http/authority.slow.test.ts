// Goal: the local authority can sign only for the appliance's own names, even in the hands of a thief; a root that
// could sign for more is replaced at start, with a notice to the operator.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { createPublicKey } from 'node:crypto'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, createServer } from 'node:tls'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { createLogger, silentLogger } from '../../src/base/log.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { guestGatewayName } from '../../src/contract/vm/agent.ts'
import { createTls } from '../../src/http/certificate.ts'
import { serveTls } from '../../src/http/serve.ts'
import { spkiDigestOf } from '../../src/linux/keys/spki.ts'

let dir: string
let caFile: string
let keyFile: string

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-ca-'))
  caFile = join(dir, 'ca', 'ca.pem')
  keyFile = join(dir, 'ca', 'ca.key')
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

/** Starts as the appliance does, and gives what it served, journalled and logged. */
async function start(names: readonly string[] = []) {
  const config = defaultConfig()
  const events: { kind: string; detail: Record<string, unknown> }[] = []
  let logged = ''
  const tls = await createTls({
    config: { ...config, tls: { ...config.tls, names: [...names] } },
    stateDir: dir,
    clock: systemClock,
    random: systemRandom,
    log: createLogger({ level: 'info', sink: line => (logged += line), nowMs: Date.now }),
    onEvent: (kind, detail) => events.push({ kind, detail }),
  })
  tls.stop()
  return { tls, leaf: tls.current(), events, logged }
}

function openssl(...argv: string[]): { ok: boolean; text: string } {
  const { exitCode, stdout, stderr } = Bun.spawnSync(['openssl', ...argv], { stdin: 'ignore', timeout: 20_000 })
  return { ok: exitCode === 0, text: `${stdout}${stderr}` }
}

function succeed(...argv: string[]): void {
  const { ok, text } = openssl(...argv)
  if (!ok) throw new Error(`openssl ${argv.join(' ')}: ${text}`)
}

/** A thief's use of the authority's key: a leaf for these names, signed by openssl. */
function forge(subject: string, names: string | null): { cert: string; key: string } {
  const [cert, key, request, extensions] = ['f.pem', 'f.key', 'f.csr', 'f.ext'].map(name => join(dir, name)) as [
    ...[string, string, string, string],
  ]
  const lines = ['basicConstraints=critical,CA:FALSE', 'extendedKeyUsage=serverAuth', 'authorityKeyIdentifier=keyid']
  writeFileSync(extensions, [...lines, ...(names === null ? [] : [`subjectAltName=${names}`])].join('\n'))
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', key]
  succeed('req', '-new', ...newKey, '-subj', subject, '-out', request)
  const authority = ['-CA', caFile, '-CAkey', keyFile, '-set_serial', '0x1234567890']
  succeed('x509', '-req', '-in', request, ...authority, '-days', '30', '-sha256', '-extfile', extensions, '-out', cert)
  return { cert: readFileSync(cert, 'utf8'), key: readFileSync(key, 'utf8') }
}

const verify = (...argv: string[]) =>
  openssl('verify', '-purpose', 'sslserver', '-CAfile', caFile, ...argv, join(dir, 'f.pem'))

test('goal: openssl refuses every leaf of this authority for a name that is not the appliance’s', async () => {
  await start(['box.example', '*.wild.example', '2001:db8::7'])
  const refused = [
    ['/CN=x', 'DNS:evil.example'],
    ['/CN=x', 'DNS:agents.internal,DNS:evil.example'],
    ['/CN=x', 'DNS:notagents.internal'],
    ['/CN=x', 'DNS:agents.internal.evil.example'],
    ['/CN=x', 'DNS:internal'],
    ['/CN=x', 'DNS:*.internal'],
    ['/CN=evil.example', null],
    ['/CN=evil.example', 'IP:127.0.0.1'],
  ] as const
  for (const [subject, names] of refused) {
    forge(subject, names)
    const { ok, text } = verify()
    expect([names, ok, /permitted subtree violation/.test(text)]).toEqual([names, false, true])
  }
  const taken = [
    ['DNS:agents.internal', '-verify_hostname', 'agents.internal'],
    ['DNS:inference.agents.internal', '-verify_hostname', 'inference.agents.internal'],
    ['DNS:box.example', '-verify_hostname', 'box.example'],
    ['DNS:*.wild.example', '-verify_hostname', 'a.wild.example'],
    ['IP:169.254.88.1', '-verify_ip', '169.254.88.1'],
    ['IP:2001:db8::7', '-verify_ip', '2001:db8::7'],
  ] as const
  for (const [names, ...check] of taken) {
    forge('/CN=x', names)
    expect([names, verify(...check)]).toEqual([names, { ok: true, text: `${join(dir, 'f.pem')}: OK\n` }])
  }
})

/** Connects as a program of this runtime that trusts the authority; prints `authorized`, or the code of the refusal. */
const client = `
const { connect } = require('node:tls')
const [port, servername, caFile] = process.argv.slice(-3)
const socket = connect({ host: '127.0.0.1', port: Number(port), servername, ca: require('node:fs').readFileSync(caFile) })
socket.on('secureConnect', () => { console.log(socket.authorized ? 'authorized' : socket.authorizationError); socket.destroy() })
socket.on('error', error => { console.log(error.code ?? error.message); socket.destroy() })
`

test('goal: Bun and Node refuse a leaf of this authority for another name, and take one for its own', async () => {
  await start()
  const script = join(dir, 'client.cjs')
  writeFileSync(script, client)
  const ask = async (runtime: string, names: string, servername: string): Promise<string> => {
    const server = createServer(forge('/CN=x', names), socket => socket.end()).listen(0, '127.0.0.1')
    server.on('tlsClientError', () => {})
    await new Promise(resolve => server.once('listening', resolve))
    const address = server.address()
    const port = typeof address === 'object' ? String(address?.port) : ''
    const child = Bun.spawn([runtime, script, port, servername, caFile], { stdout: 'pipe', timeout: 20_000 })
    const printed = (await child.stdout.text()).trim()
    server.close()
    return printed
  }
  // Neither has a code of its own for the violation.
  for (const runtime of [process.execPath, 'node']) {
    expect(await ask(runtime, 'DNS:evil.example', 'evil.example')).toBe('UNSPECIFIED')
    expect(await ask(runtime, 'DNS:instances.agents.internal', 'instances.agents.internal')).toBe('authorized')
  }
})

test('goal: the authority that instances trust can sign for the name of their gateway, for no other and for no address', async () => {
  await start()
  caFile = join(dir, 'guest-ca', 'ca.pem')
  keyFile = join(dir, 'guest-ca', 'ca.key')
  const own = `DNS:${guestGatewayName}`
  for (const names of [
    'DNS:evil.example',
    'DNS:agents.internal',
    'DNS:strongroom.internal',
    'IP:169.254.88.1',
    'IP:2001:db8::7',
    `${own},IP:127.0.0.1`,
    `${own},DNS:evil.example`,
  ]) {
    forge('/CN=x', names)
    expect([names, verify().ok]).toEqual([names, false])
  }
  const pair = forge('/CN=x', `${own},IP:127.0.0.1`)
  const ca = readFileSync(caFile, 'utf8')
  using server = Bun.serve({ port: 0, hostname: '127.0.0.1', tls: pair, fetch: () => new Response('') })
  await expect(fetch(`https://127.0.0.1:${server.port}/`, { tls: { ca } })).rejects.toHaveProperty('code')
  forge('/CN=x', own)
  expect(verify('-x509_strict', '-verify_hostname', guestGatewayName).ok).toBe(true)
})

test('goal: one listener serves clients and instances, each by the authority that they trust, with one key', async () => {
  const { tls } = await start()
  const server = serveTls(() => new Response('here'), {
    hostname: '127.0.0.1',
    port: 0,
    tls,
    guestName: guestGatewayName,
    idleTimeoutSeconds: 10,
    requestBodyBytesMax: 1024,
    log: silentLogger,
  })
  try {
    const { port } = server
    const clientsCa = readFileSync(caFile, 'utf8')
    /** The body, or the code of the refusal; and the digest of the key that was presented. */
    const ask = (servername: string, ca: string) =>
      new Promise<string>(resolve => {
        const socket = connect({ host: '127.0.0.1', port, servername, ca }, () => {
          resolve(`ok ${spkiDigestOf(socket.getPeerCertificate().raw).toHex()}`)
          socket.destroy()
        })
        socket.on('error', () => resolve('refused'))
      })
    const key = `ok ${spkiDigestOf(tls.current().cert).toHex()}`
    expect(await ask(guestGatewayName, tls.guestCaPem)).toBe(key)
    expect(await ask('inference.agents.internal', clientsCa)).toBe(key)
    expect(await ask(guestGatewayName, clientsCa)).toBe('refused')
    expect(await ask('inference.agents.internal', tls.guestCaPem)).toBe('refused')
  } finally {
    await server.stop(false)
  }
})

/** A root of earlier releases, which may sign for any name. */
const oldAuthority = () => newRoot('/CN=Strongroom local CA 0a0b0c0d', [])

function newRoot(subject: string, extensions: readonly string[]): void {
  mkdirSync(join(dir, 'ca'))
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', keyFile]
  const usage = ['basicConstraints=critical,CA:TRUE,pathlen:0', 'keyUsage=critical,keyCertSign,cRLSign']
  const added = [...usage.flatMap(line => ['-addext', line]), ...extensions]
  succeed('req', '-x509', ...newKey, '-days', '3650', '-subj', subject, ...added, '-out', caFile)
}

const read = () => ({ ca: readFileSync(caFile, 'utf8'), key: readFileSync(keyFile, 'utf8') })

test('goal: an authority without constraints is given up with its key at start, once, and the log and the journal say so', async () => {
  oldAuthority()
  const old = read()
  const { events, logged, leaf } = await start()
  const made = read()
  expect(made.ca).not.toBe(old.ca)
  expect(createPublicKey(made.key).equals(createPublicKey(old.key))).toBe(false)
  expect(events).toEqual([
    { kind: 'tls.authority_replaced', detail: { reason: 'the earlier one could sign for any name', ca_file: caFile } },
  ])
  expect(logged).toContain('certificate authority replaced')
  expect(logged).toContain(caFile)
  writeFileSync(join(dir, 'f.pem'), leaf.cert)
  expect(verify('-x509_strict', '-verify_hostname', 'agents.internal').ok).toBe(true)
  forge('/CN=x', 'DNS:evil.example')
  expect(verify().ok).toBe(false)
  const again = await start()
  expect([read(), again.events, again.leaf]).toEqual([made, [], leaf])
})

test('goal: a start that was killed while it gave up an authority goes on with one that is constrained', async () => {
  oldAuthority()
  rmSync(caFile)
  expect((await start()).events).toEqual([])
  forge('/CN=x', 'DNS:evil.example')
  expect(verify().ok).toBe(false)
})

test('goal: other names make a new root of the same key and subject, and who trusts the earlier one goes on', async () => {
  await start(['box.example'])
  const first = read()
  const fewer = await start()
  expect(fewer.events.map(({ kind }) => kind)).toEqual(['tls.authority_replaced'])
  expect(read().key).toBe(first.key)
  expect(read().ca).not.toBe(first.ca)
  const leaf = join(dir, 'f.pem')
  writeFileSync(leaf, fewer.leaf.cert)
  expect(verify('-x509_strict', '-verify_ip', '169.254.88.1').ok).toBe(true)
  const [earlier, later] = [join(dir, 'earlier.pem'), join(dir, 'later.pem')]
  writeFileSync(earlier, first.ca)
  expect(openssl('verify', '-x509_strict', '-CAfile', earlier, leaf).ok).toBe(true)
  // Must not hold: the root that lost a name still permits it, or the earlier root permits a name it never had.
  forge('/CN=x', 'DNS:box.example')
  expect(verify().ok).toBe(false)
  const more = await start(['other.example'])
  writeFileSync(leaf, more.leaf.cert)
  writeFileSync(later, read().ca)
  expect(openssl('verify', '-x509_strict', '-CAfile', later, leaf).ok).toBe(true)
  expect(openssl('verify', '-x509_strict', '-CAfile', earlier, leaf).ok).toBe(true)
})
