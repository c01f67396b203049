// Goal: the served certificate satisfies strict clients, is renewed in time, follows the operator's files, and changes
// without a dropped request; a pair that cannot be used never replaces one that can.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { X509Certificate } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import type { Clock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { openAuthority } from '../../src/http/authority.ts'
import { createTls } from '../../src/http/certificate.ts'
import { certificateNames, type TlsDeps } from '../../src/http/certificate-source.ts'
import { serveTls } from '../../src/http/serve.ts'
import { createCertificateMetrics } from '../../src/operator/certificates.ts'

const dayMs = 86_400_000
let dir: string

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-tls-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

/** A clock that only the test moves. `tick` wakes the sleepers and waits until they sleep again. */
function manualClock(startMs = Date.now()) {
  let nowMs = startMs
  let sleepers: { wakeMs: number; wake: () => void }[] = []
  const arrivals: (() => void)[] = []
  const clock: Clock = {
    nowMs: () => nowMs,
    monotonicMs: () => nowMs,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true })
        sleepers.push({ wakeMs: nowMs + ms, wake: resolve })
        for (const arrive of arrivals.splice(0)) arrive()
      }),
  }
  const tick = async (ms: number) => {
    nowMs += ms
    const due = sleepers.filter(sleeper => sleeper.wakeMs <= nowMs)
    sleepers = sleepers.filter(sleeper => sleeper.wakeMs > nowMs)
    const again = new Promise<void>(resolve => arrivals.push(resolve))
    for (const sleeper of due) sleeper.wake()
    if (due.length > 0) await again
  }
  return { clock, tick }
}

function setUp(changes: Partial<ReturnType<typeof defaultConfig>['tls']> = {}, clock = manualClock()) {
  const config = defaultConfig()
  const events: { kind: string; detail: Record<string, unknown> }[] = []
  const deps: TlsDeps = {
    config: { ...config, tls: { ...config.tls, ...changes } },
    stateDir: dir,
    clock: clock.clock,
    random: systemRandom,
    log: silentLogger,
    onEvent: (kind, detail) => events.push({ kind, detail }),
  }
  return { deps, events, tick: clock.tick, kinds: () => events.map(event => event.kind) }
}

function openssl(...argv: string[]): { ok: boolean; text: string } {
  const { exitCode, stdout, stderr } = Bun.spawnSync(['openssl', ...argv], { stdin: 'ignore' })
  return { ok: exitCode === 0, text: `${stdout}${stderr}` }
}

/** Writes an operator's own pair. */
async function operatorPair(name: string, days = 365) {
  const authority = await openAuthority({
    kind: 'clients',
    stateDir: mkdtempSync(join(dir, 'operator-')),
    names: [name, '127.0.0.1'],
    nowMs: Date.now,
    random: systemRandom,
  })
  const pair = await authority.issue([name, '127.0.0.1'], days)
  return { ...pair, ca: authority.caPem }
}

function presented(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false }, () => {
      const { fingerprint256 } = socket.getPeerCertificate()
      socket.destroy()
      resolve(fingerprint256)
    })
    socket.on('error', reject)
  })
}

test('goal: openssl in strict mode accepts chain, purpose, names and addresses', async () => {
  const { deps } = setUp()
  const tls = await createTls(deps)
  const leaf = join(dir, 'leaf.pem')
  writeFileSync(leaf, tls.current().cert)
  const caFile = join(dir, 'ca', 'ca.pem')
  expect(tls.caFile).toBe(caFile)
  for (const name of ['agents.internal', 'instances.agents.internal', 'localhost']) {
    const argv = ['verify', '-x509_strict', '-purpose', 'sslserver', '-CAfile', caFile, '-verify_hostname', name, leaf]
    expect(openssl(...argv)).toEqual({ ok: true, text: `${leaf}: OK\n` })
  }
  for (const address of ['127.0.0.1', '::1']) {
    expect(openssl('verify', '-x509_strict', '-CAfile', caFile, '-verify_ip', address, leaf).ok).toBe(true)
  }
  expect(openssl('verify', '-x509_strict', '-CAfile', caFile, '-verify_hostname', 'evil.example', leaf).ok).toBe(false)
  // Must not hold: a leaf that could sign, or serve as a client.
  expect(openssl('verify', '-purpose', 'sslclient', '-CAfile', caFile, leaf).ok).toBe(false)
  expect(new X509Certificate(tls.current().cert).ca).toBe(false)
  expect(openssl('verify', '-x509_strict', '-CAfile', caFile, caFile).ok).toBe(true)
  tls.stop()
})

test('goal: the end of each certificate is told, for doctor and metrics, and follows a renewal', async () => {
  const { deps, tick } = setUp()
  const tls = await createTls(deps)
  const ends = () => Object.fromEntries(tls.expiries().map(({ name, notAfterMs }) => [name, notAfterMs]))
  const first = ends()
  expect(Object.keys(first)).toEqual(['server', 'authority', 'guest', 'guest_authority'])
  const ca = new X509Certificate(readFileSync(join(dir, 'ca/ca.pem')))
  expect([first.server, first.authority]).toEqual([tls.current().notAfterMs, Date.parse(ca.validTo)])
  const text = createCertificateMetrics(tls).render()
  expect(text).toContain(`{certificate="server"} ${Math.floor(tls.current().notAfterMs / 1000)}\n`)
  await tick(61 * dayMs)
  expect(ends().server).toBeGreaterThan((first.server ?? 0) + 60 * dayMs)
  expect(ends().authority).toBe(Number(first.authority))
  tls.stop()
})

test('goal: keys are readable by their owner only, the authority certificate by everybody', async () => {
  const tls = await createTls(setUp().deps)
  const modes = ['ca/ca.key', 'ca/ca.pem', 'tls/server.pem'].map(file => statSync(join(dir, file)).mode & 0o777)
  expect(modes).toEqual([0o600, 0o644, 0o600])
  tls.stop()
})

test('goal: a restart keeps authority and certificate; other names below the domain make a new certificate of the same authority', async () => {
  const first = await createTls(setUp().deps)
  first.stop()
  const ca = readFileSync(join(dir, 'ca/ca.pem'), 'utf8')
  const second = await createTls(setUp().deps)
  second.stop()
  expect(second.current()).toEqual(first.current())
  const third = await createTls(setUp({ names: ['box.agents.internal'] }).deps)
  third.stop()
  expect(third.current().fingerprint).not.toBe(first.current().fingerprint)
  expect(third.current().names).toContain('DNS:box.agents.internal')
  expect(readFileSync(join(dir, 'ca/ca.pem'), 'utf8')).toBe(ca)
  const fourth = await createTls(setUp({ names: ['box.agents.internal'] }).deps)
  fourth.stop()
  expect(fourth.current()).toEqual(third.current())
})

test('goal: a start that was killed between key and certificate goes on; an authority without its key is refused', async () => {
  ;(await createTls(setUp().deps)).stop()
  unlinkSync(join(dir, 'ca/ca.pem'))
  const again = await createTls(setUp().deps)
  again.stop()
  const caFile = join(dir, 'ca/ca.pem')
  writeFileSync(join(dir, 'leaf.pem'), again.current().cert)
  expect(openssl('verify', '-x509_strict', '-CAfile', caFile, join(dir, 'leaf.pem')).ok).toBe(true)
  unlinkSync(join(dir, 'ca/ca.key'))
  await expect(createTls(setUp().deps)).rejects.toThrow(/is there without .*ca\.key/)
})

test('goal: the local certificate is renewed when fewer than renew_before_days are left, and not before', async () => {
  const { deps, tick, kinds } = setUp({ validity_days: 90, renew_before_days: 30 })
  const tls = await createTls(deps)
  const first = tls.current().fingerprint
  await tick(59 * dayMs)
  expect(tls.current().fingerprint).toBe(first)
  await tick(2 * dayMs)
  expect(tls.current().fingerprint).not.toBe(first)
  expect(tls.current().notAfterMs - deps.clock.nowMs()).toBeGreaterThan(89 * dayMs)
  expect(kinds()).toEqual(['tls.changed'])
  tls.stop()
})

test('goal: the operator pair replaces the local one and is followed through a symbolic link swap', async () => {
  const [item, two] = [await operatorPair('one.example'), await operatorPair('two.example')]
  const files = { certificate_file: join(dir, 'live.crt'), key_file: join(dir, 'live.key') }
  for (const [n, pair] of [item, two].entries()) {
    writeFileSync(join(dir, `${n}.crt`), pair.cert)
    writeFileSync(join(dir, `${n}.key`), pair.key)
  }
  symlinkSync(join(dir, '0.crt'), files.certificate_file)
  symlinkSync(join(dir, '0.key'), files.key_file)
  const { deps, tick, kinds } = setUp(files)
  const tls = await createTls(deps)
  expect([tls.source, tls.caFile, tls.current().names]).toEqual([
    'operator',
    null,
    'DNS:one.example, IP Address:127.0.0.1',
  ])
  unlinkSync(files.certificate_file)
  symlinkSync(join(dir, '1.crt'), files.certificate_file)
  await tick(2_000)
  expect(tls.current().names).toContain('one.example')
  unlinkSync(files.key_file)
  symlinkSync(join(dir, '1.key'), files.key_file)
  await tick(2_000)
  expect(tls.current().names).toContain('two.example')
  // The half-swapped state between the two was no event.
  expect(kinds()).toEqual(['tls.changed'])
  tls.stop()
})

test('goal: a broken, mismatched, vanished or expired operator pair keeps the old one and is journalled with the reason', async () => {
  const good = await operatorPair('good.example')
  const other = await operatorPair('other.example')
  const files = { certificate_file: join(dir, 'op.crt'), key_file: join(dir, 'op.key') }
  const put = (cert: string, key: string) => {
    writeFileSync(files.certificate_file, cert)
    writeFileSync(files.key_file, key)
  }
  put(good.cert, good.key)
  const { deps, events } = setUp(files, manualClock(Date.now()))
  const tls = await createTls(deps)
  const cases: [string, string, RegExp][] = [
    ['nonsense', good.key, /no PEM certificate/],
    [good.cert, 'nonsense', /private key cannot be read/],
    [other.cert, good.key, /does not belong/],
    [good.ca, good.key, /does not belong|is a CA/],
  ]
  for (const [cert, key, reason] of cases) {
    put(cert, key)
    await tls.reload()
    expect(tls.current().names).toContain('good.example')
    expect(events.at(-1)?.kind).toBe('tls.refused')
    expect(String(events.at(-1)?.detail.reason)).toMatch(reason)
  }
  unlinkSync(files.key_file)
  await tls.reload()
  expect(String(events.at(-1)?.detail.reason)).toMatch(/ENOENT/)
  put(other.cert, other.key)
  await tls.reload()
  expect(tls.current().names).toContain('other.example')
  expect(JSON.stringify(events)).not.toContain('PRIVATE KEY')
  tls.stop()
})

test('goal: an unusable operator pair at start is a config fault that names the files', async () => {
  const pair = await operatorPair('a.example')
  const files = { certificate_file: join(dir, 'a.crt'), key_file: join(dir, 'a.key') }
  writeFileSync(files.certificate_file, pair.cert)
  await expect(createTls(setUp(files).deps)).rejects.toMatchObject({
    code: 'config.file',
    param: 'tls.certificate_file',
    message: expect.stringContaining(files.key_file),
  })
})

test('goal: an expiring operator pair is warned of once a day, an expired one does not replace a valid one', async () => {
  const short = await operatorPair('short.example', 10)
  const files = { certificate_file: join(dir, 's.crt'), key_file: join(dir, 's.key') }
  writeFileSync(files.certificate_file, short.cert)
  writeFileSync(files.key_file, short.key)
  const { deps, tick, events, kinds } = setUp(files)
  const tls = await createTls(deps)
  expect(kinds()).toEqual(['tls.expiring'])
  await tick(2_000)
  await tick(2_000)
  expect(kinds()).toEqual(['tls.expiring'])
  await tick(dayMs)
  expect(kinds()).toEqual(['tls.expiring', 'tls.expiring'])
  await tick(12 * dayMs)
  expect(events.at(-1)?.detail.expired).toBe(true)
  const long = await operatorPair('long.example', 300)
  writeFileSync(files.certificate_file, long.cert)
  writeFileSync(files.key_file, long.key)
  await tls.reload()
  expect(tls.current().names).toContain('long.example')
  writeFileSync(files.certificate_file, short.cert)
  writeFileSync(files.key_file, short.key)
  await tls.reload()
  expect(tls.current().names).toContain('long.example')
  expect(String(events.at(-1)?.detail.reason)).toMatch(/expired at/)
  tls.stop()
})

test('goal: a request in flight survives a change of certificate, and new connections see the new one at once', async () => {
  const { deps, tick } = setUp()
  const tls = await createTls(deps)
  const gate = Promise.withResolvers<void>()
  const started = Promise.withResolvers<void>()
  const handler = (request: Request): Response => {
    if (!request.url.endsWith('/slow')) return new Response('quick')
    const body = new ReadableStream({
      async start(controller) {
        controller.enqueue(new TextEncoder().encode('begun '))
        started.resolve()
        await gate.promise
        controller.enqueue(new TextEncoder().encode('ended'))
        controller.close()
      },
    })
    return new Response(body)
  }
  const server = serveTls(handler, {
    hostname: '127.0.0.1',
    port: 0,
    tls,
    idleTimeoutSeconds: 30,
    requestBodyBytesMax: 65_536,
    log: silentLogger,
  })
  const url = `https://localhost:${server.port}`
  const ca = readFileSync(join(dir, 'ca/ca.pem'), 'utf8')
  const slow = fetch(`${url}/slow`, { tls: { ca } }).then(response => response.text())
  await started.promise
  const before = tls.current().fingerprint
  expect(await presented(server.port)).toBe(before)
  await tick(61 * dayMs)
  const after = tls.current().fingerprint
  expect(after).not.toBe(before)
  // Every one of several: two listeners share the port only for a moment.
  const seen = new Set(await Promise.all(Array.from({ length: 16 }, () => presented(server.port))))
  expect([...seen]).toEqual([after])
  gate.resolve()
  expect(await slow).toBe('begun ended')
  await server.stop(true)
  tls.stop()
})

test('goal: curl, Bun and node accept the certificate with the authority, and refuse it without', async () => {
  const tls = await createTls(setUp().deps)
  const server = serveTls(() => new Response('hello'), {
    hostname: '127.0.0.1',
    port: 0,
    tls,
    idleTimeoutSeconds: 30,
    requestBodyBytesMax: 65_536,
    log: silentLogger,
  })
  const caFile = join(dir, 'ca/ca.pem')
  const url = `https://localhost:${server.port}/`
  const name = `instances.agents.internal:${server.port}`
  const curl = async (...argv: string[]) => {
    const child = Bun.spawn(['curl', '--silent', '--show-error', ...argv], { stdout: 'pipe', stderr: 'pipe' })
    return [await child.exited, await new Response(child.stdout).text()]
  }
  expect(await curl('--cacert', caFile, url)).toEqual([0, 'hello'])
  expect(await curl('--cacert', caFile, '--resolve', `${name}:127.0.0.1`, `https://${name}/`)).toEqual([0, 'hello'])
  expect((await curl(url))[0]).toBe(60)
  const ca = readFileSync(caFile, 'utf8')
  expect(await (await fetch(url, { tls: { ca } })).text()).toBe('hello')
  expect(await (await fetch(`https://127.0.0.1:${server.port}/`, { tls: { ca } })).text()).toBe('hello')
  await expect(fetch(url)).rejects.toThrow()
  const authorized = await new Promise(resolve => {
    const socket = connect({ host: '127.0.0.1', port: server.port, servername: 'agents.internal', ca }, () => {
      resolve(socket.authorized)
      socket.destroy()
    })
  })
  expect(authorized).toBe(true)
  await server.stop(false)
  tls.stop()
})

test('goal: a port that somebody else has is refused, though listeners of ours share it', async () => {
  const tls = await createTls(setUp().deps)
  const other = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response('other') })
  const options = { hostname: '127.0.0.1', tls, idleTimeoutSeconds: 30, requestBodyBytesMax: 1024, log: silentLogger }
  expect(() => serveTls(() => new Response(), { ...options, port: other.port ?? 0 })).toThrow(/listen on 127\.0\.0\.1/)
  await other.stop(true)
  const first = serveTls(() => new Response(), { ...options, port: 0 })
  expect(() => serveTls(() => new Response(), { ...options, port: first.port })).toThrow(/listen on 127\.0\.0\.1/)
  await first.stop(false)
  tls.stop()
})

test('goal: the names of a local certificate are those that clients use', () => {
  const config = defaultConfig()
  const names = (instances: string) => certificateNames({ ...config, listen: { ...config.listen, instances } })
  const hosts = ['agents.internal', 'instances.agents.internal', 'inference.agents.internal']
  const always = [...hosts, 'localhost', '127.0.0.1', '::1', '169.254.88.1']
  expect(names('0.0.0.0:8441')).toEqual(always)
  expect(names('192.0.2.7:8441')).toEqual([...always, '192.0.2.7'])
  expect(names('[2001:db8::1]:8441')).toEqual([...always, '2001:db8::1'])
})
