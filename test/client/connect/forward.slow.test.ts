// Goal: one command leads from loopback to a port inside of a verified instance, and to nothing else. The real HTTP of
// service A, scripted VMs, a real sshd.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastingPort } from '../../../scripts/rigs/free-port.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { startCustomerService } from '../../rigs/instances/customer-service.ts'
import { sampleHostKey } from '../../rigs/instances/instance-attestation.ts'
import { hasSshd, startSshServer } from '../../rigs/instances/ssh-server.ts'
import { programArgv } from '../../rigs/program.ts'

const noSshd = skipUnless(hasSshd(), 'needs ssh and sshd of OpenSSH')
const dir = mkdtempSync(join(tmpdir(), 'srt-forward-'))
const service = await startCustomerService(dir)
const server = noSshd ? null : await startSshServer(dir)
const inside = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response('of the instance') })
const home = join(dir, 'home')
mkdirSync(join(home, '.ssh'), { recursive: true, mode: 0o700 })
writeFileSync(join(home, '.ssh/id_ed25519.pub'), `${server?.publicKey}\n`)
writeFileSync(join(home, '.ssh/id_ed25519'), readFileSync(server?.userKeyFile ?? ''), { mode: 0o600 })
service.hostKey = server?.hostKey ?? ''
if (!noSshd) {
  expect((await ended(start('client', 'init', service.url, ...service.initOptions))).code).toBe(0)
  expect((await ended(start('up', 'work', '--no-login'))).code).toBe(0)
}
afterAll(async () => {
  await inside.stop(true)
  await server?.[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})

const ssh = (port = server?.port) => ['--', '-F', 'none', '-o', 'HostName=127.0.0.1', '-o', `Port=${port}`]
const work = `--instance=${server?.user}@work`

function start(...argv: string[]) {
  const env = { PATH: process.env.PATH ?? '', HOME: home, TMPDIR: home }
  return Bun.spawn([...programArgv, ...argv], { env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
}

async function ended(child: ReturnType<typeof start>) {
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { stdout, stderr, code }
}

/** Resolves with the first line of its output, and its whole output once it has ended. */
async function firstLine(child: ReturnType<typeof start>): Promise<[line: string, rest: Promise<string>]> {
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  while (!text.includes('\n')) {
    const { value, done } = await reader.read()
    if (done) throw new Error(`it ended: ${text}${await child.stderr.text()}`)
    text += value
  }
  const rest = async () => {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) return text
      text += value
    }
  }
  return [text.slice(0, text.indexOf('\n')), rest()]
}

const answerAt = async (port: number) => await (await fetch(`http://127.0.0.1:${port}/`)).text()

describe.skipIf(noSshd)('connect --instance', () => {
  test('goal: it says what listens where, leads to the port inside, and a signal ends all of it', async () => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      const port = lastingPort()
      const child = start('connect', work, `${inside.port}:${port}`, ...ssh())
      const [line, rest] = await firstLine(child)
      expect(line).toMatch(/^Listening on 127\.0\.0\.1:\d+ of this machine: leads to 127\.0\.0\.1:\d+ in \w{8}\.acme\./)
      expect(line).toContain(`127.0.0.1:${port} of this machine: leads to 127.0.0.1:${inside.port} `)
      const answers = await Promise.all([1, 2, 3].map(() => answerAt(port)))
      expect(answers).toEqual(Array(3).fill('of the instance'))
      child.kill(signal)
      expect([signal, await child.exited, await rest]).toEqual([signal, 0, `${line}\n`])
      await expect(answerAt(port)).rejects.toThrow()
    }
  })

  test('goal: with --json one document says the same', async () => {
    const port = lastingPort()
    const child = start('connect', work, `${inside.port}:${port}`, '--json', ...ssh())
    const text = child.stdout.text()
    expect(await Promise.race([child.exited, reached(port)])).toBe('of the instance')
    child.kill('SIGINT')
    expect([await child.exited, JSON.parse(await text)]).toMatchObject([
      0,
      { ready: true, local: `127.0.0.1:${port}`, remote: `127.0.0.1:${inside.port}` },
    ])
  })

  test('goal: a port in use and one that is none are errors before the first request', async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    await new Promise(resolve => taken.once('listening', resolve))
    const address = taken.address()
    const port = typeof address === 'object' ? address?.port : 0
    service.requests.length = 0
    const { code, stderr } = await ended(start('connect', work, `${inside.port}:${port}`, ...ssh()))
    taken.close()
    expect([code, stderr]).toEqual([2, expect.stringContaining(`127.0.0.1:${port} of this machine: another program`)])
    expect(stderr).toContain('name another port of this machine')
    for (const text of ['0', '65536', '3000:', ':3000', '3000:0', '1.2.3.4:80', 'https://x.example', '-3']) {
      const refused = await ended(start('connect', work, text))
      expect([text, refused.code]).toEqual([text, 2])
    }
    expect(service.requests).toEqual([])
  }, 60_000)

  test('goal: after FAIL nothing listens, and a machine with another host key gets no connection', async () => {
    const port = lastingPort()
    const refused = await ended(
      start('connect', work, `${inside.port}:${port}`, '--public-key', sampleHostKey, ...ssh()),
    )
    expect([refused.code, refused.stdout, refused.stderr]).toEqual([6, '', expect.stringContaining('VERDICT: FAIL')])
    const strange = mkdtempSync(join(dir, 'strange-'))
    await using other = await startSshServer(strange)
    const { code, stdout, stderr } = await ended(start('connect', work, `${inside.port}:${port}`, ...ssh(other.port)))
    expect([code, stdout, stderr]).toEqual([255, '', expect.stringContaining('Host key verification failed')])
    await expect(answerAt(port)).rejects.toThrow()
  })

  test('goal: help has both commands', async () => {
    const [gateway, instance] = await Promise.all([
      ended(start('connect', '--help')),
      ended(start('connect', '--instance', 'work', '--help')),
    ])
    expect([gateway.code, gateway.stdout]).toEqual([0, expect.stringContaining('--instance <name>')])
    expect([instance.code, instance.stdout]).toEqual([0, expect.stringContaining('PORT:LOCAL')])
  })
})

/** Resolves with the answer once the port leads somewhere. */
async function reached(port: number): Promise<string> {
  for (;;) {
    try {
      return await answerAt(port)
    } catch {
      await Bun.sleep(50)
    }
  }
}
