// Goal: a webhook gets a message that its receiver can verify, and an e-mail leaves over TLS alone, to a server that is
// trusted; what goes wrong has its reason, without secrets.

import { afterAll, expect, test } from 'bun:test'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startMailServer } from '../../../scripts/rigs/monitoring/mail-server.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import type { AlertMessage } from '../../../src/contract/admin/alerts.ts'
import { fetchDirectly } from '../../../src/linux/net/outgoing.ts'
import { createMail, type MailSettings } from '../../../src/operator/alerts/mail.ts'
import { createWebhook } from '../../../src/operator/alerts/webhook.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-alerts-'))
afterAll(() => rmSync(dir, { recursive: true }))

/** A certificate of a name and an address, which is its own authority. */
function certificate(name: string) {
  const [key, cert] = [join(dir, `${name}.key`), join(dir, `${name}.crt`)]
  const made = Bun.spawnSync([
    ...['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
    ...['-keyout', key, '-out', cert, '-subj', `/CN=${name}`, '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'],
  ])
  expect(made.exitCode).toBe(0)
  return { file: cert, key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') }
}
const [trusted, other] = [certificate('trusted'), certificate('other')]

const message: AlertMessage = {
  ...{ version: 1, id: 'msg_7', kind: 'problems', at: '2026-11-26T12:00:00.000Z', ready: false, omitted: 0 },
  host: { id: 'h', domain: 'agents.example', version: '1' },
  began: [
    {
      ...{ name: 'upstream', subject: 'u', severity: 'critical', since: '2026-11-26T11:00:00.000Z' },
      ...{ detail: 'it says\r\n.\r\nMAIL FROM:<evil@example.org>', affects: 'prompts', remedy: 'start it' },
    },
  ],
  ...{ resolved: [], open: [] },
}
const never = new AbortController().signal
const failure = (work: Promise<void>) => work.then(() => 'sent', String)

type Received = { readonly path: string; readonly headers: Headers; readonly body: string }

function hook(answer: () => Response) {
  const received: Received[] = []
  const server = Bun.serve({
    ...{ hostname: '127.0.0.1', port: 0, tls: { key: trusted.key, cert: trusted.cert } },
    fetch: async request => {
      received.push({ path: new URL(request.url).pathname, headers: request.headers, body: await request.text() })
      return answer()
    },
  })
  return {
    received,
    url: `https://127.0.0.1:${server.port}/hook/secret-path`,
    [Symbol.dispose]: () => void server.stop(true),
  }
}

const secretFile = join(dir, 'alerts-secret')
const runtime = { random: systemRandom, clock: systemClock, outgoing: fetchDirectly }
const webhook = (url: string, change = {}) =>
  createWebhook({ url, secretFile, isOwnSecret: true, caFile: trusted.file, ...change }, runtime)

test('goal: the receiver verifies the signature with the secret that the daemon made', async () => {
  using receiver = hook(() => new Response(null, { status: 204 }))
  await webhook(receiver.url).send(message, never)
  const [{ headers, body, path }] = receiver.received as [Received]
  expect([path, JSON.parse(body), headers.get('content-type')]).toEqual([
    '/hook/secret-path',
    message,
    'application/json',
  ])
  const secret = readFileSync(secretFile, 'utf8').trim()
  expect([secret.slice(0, 6), statSync(secretFile).mode & 0o777]).toEqual(['whsec_', 0o600])
  const [id, timestamp] = [headers.get('webhook-id'), headers.get('webhook-timestamp')]
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64')
  const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')
  expect(headers.get('webhook-signature')).toBe(`v1,${signature}`)
  expect([id, key.length, Math.abs(Number(timestamp) * 1000 - Date.now()) < 60_000]).toEqual(['msg_7', 32, true])
})

test('goal: the vector of Standard Webhooks has the signature of its specification', async () => {
  const { signedHeaders } = await import('../../../src/operator/alerts/webhook.ts')
  const headers = signedHeaders({
    ...{ id: 'msg_p5jXN8AQM9LWM0D4loKWxJek', timestamp: 1_614_265_330, body: '{"test": 2432232314}' },
    secret: new Uint8Array(Buffer.from('MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 'base64')),
  })
  expect(headers['webhook-signature']).toBe('v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=')
})

test('goal: another status, a redirect, an authority that is not trusted and a bad secret are failures with a reason', async () => {
  using refusing = hook(() => new Response('x'.repeat(1_000_000), { status: 500 }))
  expect(await failure(webhook(refusing.url).send(message, never))).toBe('Error: it answers with status 500')
  using elsewhere = hook(() => new Response(null, { status: 307, headers: { location: refusing.url } }))
  expect(await failure(webhook(elsewhere.url).send(message, never))).toBe('Error: it answers with status 307')
  expect(refusing.received).toHaveLength(1)
  const untrusted = await failure(webhook(refusing.url, { caFile: other.file }).send(message, never))
  expect([untrusted === 'sent', untrusted.includes('secret-path')]).toEqual([false, false])
  const short = join(dir, 'short')
  writeFileSync(short, 'whsec_AAAA\n')
  const bad = { secretFile: short, isOwnSecret: false }
  expect(await failure(webhook(refusing.url, bad).send(message, never))).toContain(`${short} must hold whsec_`)
  const none = { secretFile: join(dir, 'none'), isOwnSecret: false }
  expect(await failure(webhook(refusing.url, none).send(message, never))).toContain('none cannot be read')
  expect(refusing.received).toHaveLength(1)
  expect(webhook(refusing.url).target).toBe(new URL(refusing.url).origin)
})

const passwordFile = join(dir, 'password')
writeFileSync(passwordFile, 'hunter2 hunter2\n')
const mail = (port: number, change: Partial<MailSettings> = {}, limitMs?: number) =>
  createMail(
    {
      ...{ smtp_server: `127.0.0.1:${port}`, smtp_tls: 'starttls', smtp_ca_file: trusted.file },
      ...{ smtp_user: 'strongroom', smtp_password_file: passwordFile },
      ...{ email_from: 'strongroom@agents.example', email_to: ['a@example.org', 'b@example.org'], ...change },
    },
    limitMs,
  )

test('goal: an e-mail by STARTTLS and one by TLS at once, with the password under TLS alone', async () => {
  for (const kind of ['starttls', 'tls'] as const) {
    await using server = await startMailServer({ kind, pair: trusted })
    await mail(server.port, { smtp_tls: kind }).send(message, never)
    const [text = ''] = server.mails
    expect(text).toContain('Subject: [strongroom] agents.example (NOT READY): CRITICAL: upstream')
    expect(text).toContain('Message-ID: <msg_7@agents.example>')
    expect(text).toContain('Auto-Submitted: auto-generated')
    expect([text.includes('critical upstream u'), server.mails.length]).toEqual([true, 1])
    const login = `AUTH PLAIN ${Buffer.from('\0strongroom\0hunter2 hunter2').toString('base64')}`
    const { commands } = server
    expect([commands.includes(login), commands.indexOf('STARTTLS') < commands.indexOf(login)]).toEqual([true, true])
    expect(commands.filter(line => /^(MAIL|RCPT)/.test(line))).toEqual([
      'MAIL FROM:<strongroom@agents.example>',
      ...['RCPT TO:<a@example.org>', 'RCPT TO:<b@example.org>'],
    ])
  }
})

test('goal: a server without TLS, with another certificate, or that refuses the log-in gets no message', async () => {
  await using plain = await startMailServer({ kind: 'plain', pair: trusted })
  expect(await failure(mail(plain.port).send(message, never))).not.toBe('sent')
  await using stranger = await startMailServer({ kind: 'starttls', pair: other })
  expect(await failure(mail(stranger.port).send(message, never))).not.toBe('sent')
  await using refusing = await startMailServer({ kind: 'starttls', pair: trusted, authAnswer: '535 no' })
  const reason = await failure(mail(refusing.port).send(message, never))
  expect([reason.includes('535'), reason.includes('hunter2')]).toEqual([true, false])
  for (const server of [plain, stranger, refusing]) {
    expect([server.mails, server.commands.filter(line => /^(MAIL|DATA)/.test(line))]).toEqual([[], []])
  }
  expect(plain.commands.filter(line => line.startsWith('AUTH'))).toEqual([])
  await plain[Symbol.asyncDispose]()
  expect(await failure(mail(plain.port).send(message, never))).toContain('ECONNREFUSED')
})

test('goal: a server that never answers holds no message beyond its limit, and not beyond the end of the daemon', async () => {
  const open = new Set<Socket>()
  const silent = createServer(socket => open.add(socket)).listen(0, '127.0.0.1')
  await once(silent, 'listening')
  const { port } = silent.address() as AddressInfo
  expect(await failure(mail(port, {}, 200).send(message, never))).toBe('Error: the message was not taken within 200 ms')
  const stopping = new AbortController()
  const sending = failure(mail(port).send(message, stopping.signal))
  stopping.abort(new Error('the daemon stops'))
  expect(await sending).toBe('Error: the daemon stops')
  for (const socket of open) socket.destroy()
  silent.close()
})

test('goal: no connection outlives its attempt, also to a server that answers byte by byte', async () => {
  const open = new Set<Socket>()
  const closed: Promise<unknown>[] = []
  const dripping = createServer(socket => {
    open.add(socket)
    socket.on('error', () => {})
    const timer = setInterval(() => socket.write('250-A\r\n'), 20)
    const { promise, resolve } = Promise.withResolvers<void>()
    socket.on('close', () => {
      clearInterval(timer)
      open.delete(socket)
      resolve()
    })
    closed.push(promise)
    socket.write('220 x ESMTP\r\n')
    socket.resume()
  }).listen(0, '127.0.0.1')
  await once(dripping, 'listening')
  const { port } = dripping.address() as AddressInfo
  const limited = await failure(mail(port, {}, 200).send(message, never))
  expect(limited).toBe('Error: the message was not taken within 200 ms')
  const stopping = new AbortController()
  const connected = once(dripping, 'connection')
  const sending = failure(mail(port).send(message, stopping.signal))
  await connected
  stopping.abort(new Error('the daemon stops'))
  expect(await sending).toBe('Error: the daemon stops')
  await Promise.all(closed)
  expect([closed.length, open.size]).toEqual([2, 0])
  dripping.close()
}, 20_000)
