import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { needsRoot } from '../../../scripts/rigs/netns.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { probeSsh } from '../../../src/host/network/ssh-probe.ts'

setDefaultTimeout(180_000)

/** A machine that stands still for some seconds decides nothing. */
const [limitMs, atOnceMs] = [60_000, 30_000]

if (needsRoot('ssh-probe.test.ts: sshd')) {
  const dir = mkdtempSync(join(tmpdir(), 'ssh-test-'))
  const address = '127.0.0.1'
  let sshd: Bun.Subprocess<'ignore', 'ignore', 'pipe'>
  let port = 0
  let log = ''

  const keygen = (name: string, type: string) => {
    const { exitCode } = Bun.spawnSync(['ssh-keygen', '-q', '-t', type, '-N', '', '-C', '', '-f', join(dir, name)])
    expect(exitCode).toBe(0)
  }
  const publicKey = (name: string) => readFileSync(join(dir, `${name}.pub`), 'utf8').trim()

  beforeAll(async () => {
    for (const name of ['host', 'other']) keygen(name, 'ed25519')
    // sshd has no port 0: find a free one and try again when it was taken in between.
    for (let attempt = 0; attempt < 5 && port === 0; attempt += 1) {
      const free = Bun.listen({ hostname: address, port: 0, socket: { data: () => {} } })
      const candidate = free.port
      free.stop(true)
      const config = [
        `ListenAddress ${address}:${candidate}`,
        `HostKey ${join(dir, 'host')}`,
        'PidFile none',
        'UsePAM no',
        'StrictModes no',
        'LogLevel DEBUG1',
      ]
      writeFileSync(join(dir, 'sshd_config'), config.join('\n'))
      mkdirSync('/run/sshd', { recursive: true })
      sshd = Bun.spawn(['/usr/sbin/sshd', '-D', '-e', '-f', join(dir, 'sshd_config')], {
        stdio: ['ignore', 'ignore', 'pipe'],
      })
      const mine = sshd
      void (async () => {
        for await (const chunk of mine.stderr) log += Buffer.from(chunk).toString()
      })()
      await until('sshd listens or is gone', limitMs, () => log.includes('Server listening') || mine.exitCode !== null)
      if (mine.exitCode === null) port = candidate
    }
  })
  afterAll(async () => {
    sshd.kill('SIGTERM')
    await sshd.exited
    rmSync(dir, { recursive: true })
  })

  test('goal: a real sshd with the attested key is reachable, at once, and sees no user and no attempt', async () => {
    const startedMs = performance.now()
    await probeSsh({ address, port, hostKey: publicKey('host'), timeoutMs: limitMs })
    expect(performance.now() - startedMs).toBeLessThan(atOnceMs)
    await until('the server notes the end', limitMs, () => /Received disconnect|Connection closed/.test(log))
    expect(log).toContain('curve25519-sha256')
    expect(log).not.toContain('userauth-request')
  })

  test('goal: another key, also one that differs in one bit, is ssh.wrong_host_key', async () => {
    const [type, text] = publicKey('host').split(' ')
    const blob = Buffer.from(text ?? '', 'base64')
    blob[50] = (blob[50] ?? 0) ^ 1
    for (const hostKey of [publicKey('other'), `${type} ${blob.toString('base64')}`]) {
      const fault = await failure(probeSsh({ address, port, hostKey, timeoutMs: limitMs }))
      expect(fault).toMatchObject({ code: 'ssh.wrong_host_key', message: expect.stringContaining('another host key') })
    }
  })

  test('goal: what is no Ed25519 host key is refused before anything is sent', async () => {
    const [, text] = publicKey('host').split(' ')
    for (const hostKey of ['', 'ssh-ed25519', 'ssh-ed25519 AAAA', `ssh-rsa ${text}`, `ssh-ed25519 ${text} comment`]) {
      const fault = await failure(probeSsh({ address, port: 1, hostKey, timeoutMs: 1_000 }))
      expect(fault).toMatchObject({ code: 'ssh.wrong_host_key', message: expect.stringContaining('not of the form') })
    }
  })

  test('goal: a server without an Ed25519 key, a closed port, a silent one, one that hangs up and one that talks nonsense are unreachable', async () => {
    const talk = (text: string | null, hangUp: boolean) =>
      Bun.listen({
        hostname: address,
        port: 0,
        socket: {
          open: socket => {
            if (text !== null) socket.write(text)
            if (hangUp) socket.end()
          },
          data: () => {},
        },
      })
    const closed = talk(null, false)
    const closedPort = closed.port
    closed.stop(true)
    const servers = [
      talk(null, false),
      talk(null, true),
      talk('SSH-2.0-x\r\nnonsense', true),
      talk('HTTP/1.1 400\r\n\r\n'.repeat(500), false),
    ]
    const hostKey = publicKey('host')
    for (const port of [closedPort, ...servers.map(server => server.port)]) {
      const startedMs = performance.now()
      const fault = await failure(probeSsh({ address, port, hostKey, timeoutMs: 300 }))
      expect(fault).toMatchObject({ code: 'ssh.unreachable' })
      expect(performance.now() - startedMs).toBeLessThan(atOnceMs)
    }
    for (const server of servers) server.stop(true)
  })
}
