// A customer's way from an API key to files out of an instance: the real HTTP of service A, scripted VMs, a real sshd.

import { afterAll, afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { startCustomerService } from '../../rigs/instances/customer-service.ts'
import { clientFiles, ed25519Line, sampleHostKey } from '../../rigs/instances/instance-attestation.ts'
import { hasSshd, startSshServer } from '../../rigs/instances/ssh-server.ts'
import { programArgv } from '../../rigs/program.ts'

const noSshd = skipUnless(hasSshd(), 'needs ssh and sshd of OpenSSH')
const dir = mkdtempSync(join(tmpdir(), 'srt-up-'))
const service = await startCustomerService(dir)
const server = noSshd ? null : await startSshServer(dir)
afterAll(async () => {
  await server?.[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})

let home = ''
beforeEach(() => {
  home = mkdtempSync(join(dir, 'home-'))
  mkdirSync(join(home, '.ssh'), { mode: 0o700 })
  writeFileSync(join(home, '.ssh/id_ed25519.pub'), `${server?.publicKey}\n`)
  writeFileSync(join(home, '.ssh/id_ed25519'), readFileSync(server?.userKeyFile ?? ''), { mode: 0o600 })
  Object.assign(service, { hostKey: server?.hostKey, fate: 'ready', lie: null, claimedKey: null, loosens: false })
  service.requests.length = 0
})
afterEach(() => {
  rmSync(home, { recursive: true })
})

/** The sshd of the test instead of the instance's address, which is nowhere. It admits the user of the test alone. */
const place = ['-F', 'none', '-o', 'HostName=127.0.0.1', '-o', `Port=${server?.port}`]
const at = (name: string) => `${server?.user}@${name}`
const batch = ['-o', 'BatchMode=yes', '-o', 'IdentitiesOnly=yes']

async function strongroom(...argv: string[]) {
  const env = { PATH: process.env.PATH ?? '', HOME: home, TMPDIR: home }
  const child = Bun.spawn([...programArgv, ...argv], { env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { stdout, stderr, code }
}

const init = () => strongroom('client', 'init', service.url, ...service.initOptions)
const config = (name: string) => join(home, '.config/strongroom', name)
const creates = () => service.requests.filter(({ method }) => method === 'POST')
const logins = () => (server?.log().match(/Accepted publickey/g) ?? []).length
const connections = () => (server?.log().match(/Connection from/g) ?? []).length

describe.skipIf(noSshd)('a customer', () => {
  test('goal: two commands lead from files and a key to a command in a verified instance; more lead to its files and its end', async () => {
    const first = await init()
    expect([first.code, first.stderr]).toEqual([0, ''])
    expect(first.stdout).toContain('Next: strongroom up')
    expect(first.stdout).toContain('the operator key, SHA-384 0404')
    expect(statSync(config('client.toml')).mode & 0o777).toBe(0o600)

    const up = await strongroom('up', at('work'), '--', ...place, ...batch, 'echo in; exit 7')
    expect([up.stdout, up.code, up.code === 7 ? '' : up.stderr + server?.log()]).toEqual(['in\n', 7, ''])
    expect(up.stderr).toContain('VERDICT: PASS SIMULATED')
    const { hostname } = JSON.parse(readFileSync(config('instances/work.json'), 'utf8'))
    expect(readFileSync(config('known_hosts'), 'utf8')).toBe(`${hostname} ${server?.hostKey}\n`)
    expect(existsSync(join(home, '.ssh/known_hosts'))).toBe(false)

    const again = await strongroom('up', 'work', '--json')
    expect([again.code, again.stderr]).toEqual([0, ''])
    expect(JSON.parse(again.stdout)).toMatchObject({
      name: 'work',
      created: false,
      instance: { hostname },
      verdict: { ok: true },
    })
    expect(creates()).toHaveLength(1)

    const listed = JSON.parse((await strongroom('ls', '--json')).stdout)
    expect(listed.instances).toMatchObject([{ local_name: 'work', verified: true, status: 'ready', hostname }])
    expect((await strongroom('ls')).stdout).toMatch(/^NAME +INSTANCE .*\nwork +\w{8} +ready +verified /)

    const ssh = await strongroom('ssh', at('work'), '--', ...place, ...batch, 'echo $((6*7))')
    expect([ssh.stdout, ssh.code]).toEqual(['42\n', 0])

    const there = join(dir, 'there')
    mkdirSync(join(there, 'more'), { recursive: true })
    writeFileSync(join(home, 'a:b'), 'text')
    const cp = (...argv: string[]) => strongroom('cp', ...argv, '--', ...place, ...batch)
    expect((await cp(join(home, 'a:b'), `${at('work')}:${there}/c`)).code).toBe(0)
    expect(readFileSync(join(there, 'c'), 'utf8')).toBe('text')
    writeFileSync(join(there, 'more/d'), 'deep')
    expect((await cp('-r', `${at('work')}:${there}/more`, home)).code).toBe(0)
    expect(readFileSync(join(home, 'more/d'), 'utf8')).toBe('deep')

    const usage = JSON.parse((await strongroom('usage', '--json')).stdout)
    expect(usage).toMatchObject({ pricing: { subscription_cost_usd: '99.00' }, usage: { egress_bytes: 0 } })
    expect((await strongroom('usage')).stdout).toContain('instance hours: ')

    const asking = await strongroom('rm', 'work')
    expect([asking.code, asking.stderr]).toEqual([2, expect.stringContaining('add --yes')])
    const rm = await strongroom('rm', 'work', '--yes')
    expect([rm.code, rm.stderr]).toEqual([0, ''])
    expect([readdirSync(config('instances')), readFileSync(config('known_hosts'), 'utf8')]).toEqual([['lock'], ''])
    expect(service.appliance.instance(hostname.split('.')[0]).status).toBe('terminating')
  })
})

test.skipIf(noSshd)('goal: up asks for a reach, and logs in only if the VM states exactly that', async () => {
  await init()
  const reach = ['--reach', 'GitHub.com', '--reach', '*.example.org:8443']
  const up = await strongroom('up', at('work'), ...reach, '--', ...place, ...batch, 'echo in')
  expect([up.stdout, up.code]).toEqual(['in\n', 0])
  expect(up.stderr).toMatch(/^reach +only \*\.example\.org:8443, github\.com; the VM enforces it$/m)
  // The same request again, and without options: the instance of the name.
  expect((await strongroom('up', 'work', ...reach, '--json')).code).toBe(0)
  expect(JSON.parse((await strongroom('up', 'work', '--json')).stdout).verdict.reach.allow).toHaveLength(2)
  const other = await strongroom('up', 'work', '--reach', 'github.com', '--no-login')
  expect([other.code, other.stderr]).toEqual([6, expect.stringContaining('not only github.com as you expect')])
  // A pin that is named counts.
  const pin = join(dir, 'reach.json')
  writeFileSync(pin, '{"default":"refuse","allow":[]}')
  const pinned = await strongroom('up', 'work', '--egress-policy', pin, '--no-login')
  expect([pinned.code, pinned.stderr]).toEqual([6, expect.stringContaining('not nothing as you expect')])
  service.loosens = true
  const loosened = await strongroom('up', at('other'), ...reach, '--', ...place, ...batch, 'echo in')
  expect([loosened.stdout, loosened.code]).toEqual(['', 6])
  expect(loosened.stderr).toContain('any destination, not only')
  const wrong = await strongroom('up', 'third', '--reach', '192.0.2.1')
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('It must be HOST or HOST:PORT')])
})

test.skipIf(noSshd)('goal: a new instance is as the policy file of up expects it, or is not created', async () => {
  await init()
  service.requests.length = 0
  const { policy: report } = await clientFiles()
  const policy = join(home, 'policy.json')
  const stated = (fields: object) => writeFileSync(policy, JSON.stringify({ ...JSON.parse(report), ...fields }))
  const egress = { default: 'refuse', allow: [{ host: 'github.com', port: 443 }] }
  const secrets = [{ name: 'TOKEN', host: 'api.github.com', port: 443, header: 'Authorization' }]
  const up = (...argv: string[]) => strongroom('up', 'work', '--no-login', '--policy', policy, ...argv)
  const refusals: [object, string[], string][] = [
    [{ egress }, ['--reach', 'example.org'], '--reach names only example.org, and policy.egress only github.com'],
    [{ secrets }, [], 'policy.secrets has TOKEN, and a new instance has no secrets'],
    [{ secrets }, ['--from', 'abcd1234'], 'policy.secrets has TOKEN, and a new instance has no secrets'],
    [{ loginKeys: [ed25519Line(7)] }, [], 'policy.loginKeys lacks SHA256:'],
    [{ loginKeys: [ed25519Line(7)] }, ['--from', 'abcd1234'], 'policy.loginKeys lacks SHA256:'],
  ]
  for (const [fields, argv, words] of refusals) {
    stated(fields)
    const { code, stderr } = await up(...argv)
    expect([words, code, stderr]).toEqual([words, 2, expect.stringContaining(words)])
  }
  expect([service.requests, readdirSync(config('.')).includes('instances')]).toEqual([[], false])
  stated({ egress, secrets: [], loginKeys: [ed25519Line(7), server?.publicKey] })
  const created = await up('--json')
  expect([created.code, created.stderr]).toEqual([0, ''])
  expect(JSON.parse(created.stdout).verdict.reach).toEqual(egress)
  // It exists: the verdict, and no refusal.
  stated({ egress, secrets })
  const existing = await up()
  expect([existing.code, existing.stderr]).toEqual([6, expect.stringContaining('it lacks TOKEN')])
  expect(creates()).toHaveLength(1)
})

test.skipIf(noSshd)('goal: what stands after -- is for ssh, also without a name; another word is no name', async () => {
  await init()
  const { stdout, code } = await strongroom('up', '--no-login', '--', ...place, 'uname', '--all')
  expect([code, stdout]).toEqual([0, expect.stringContaining('default is ready and verified')])
  expect(readdirSync(config('instances')).sort()).toEqual(['default.json', 'lock'])
  for (const name of ['a.b', 'A', 'x'.repeat(33), 'a/b', '']) {
    const refused = await strongroom('up', name)
    expect([name, refused.code, refused.stderr]).toEqual([
      name,
      2,
      expect.stringContaining('is no name for an instance'),
    ])
  }
})

describe.skipIf(noSshd)('without configuration', () => {
  // Goal: one message names the command that writes what is missing, and no request is sent.
  test('up and its siblings name client init', async () => {
    for (const argv of [['up'], ['ls'], ['usage'], ['rm', 'work', '--yes']]) {
      const { code, stderr } = await strongroom(...argv)
      expect([argv, code, stderr]).toEqual([
        argv,
        2,
        expect.stringContaining('strongroom client init https://HOST:PORT'),
      ])
    }
    expect(service.requests).toEqual([])
  })

  // Goal: what could not be verified is not created.
  test('an image and an operator key that are missing are named before the first request', async () => {
    await init()
    service.requests.length = 0
    const text = readFileSync(config('client.toml'), 'utf8')
    writeFileSync(config('client.toml'), text.replace(/^(?:image|operator_key) = .*\n/gm, ''))
    const { code, stderr } = await strongroom('up')
    expect([code, stderr]).toEqual([2, expect.stringContaining('client.toml has no image and no operator_key')])
    expect(service.requests).toEqual([])
  })
})

/** Changes the fields of the record in responses to these requests. */
type Body = { readonly data: Record<string, string> }

function recordLie(methods: string, change: object) {
  return async (response: Response, path: string, method: string) => {
    if (!methods.includes(method) || path.includes('attestation') || !response.ok) return response
    const body = (await response.json()) as Body
    return Response.json({ ...body, data: { ...body.data, ...change } }, { status: response.status })
  }
}

describe.skipIf(noSshd)('a host that lies', () => {
  const attempt = () => strongroom('up', at('work'), '--', ...place, ...batch, 'echo in')

  // Goal: a verdict that fails opens no connection, leaves no key, and ends with the exit code of the verdict.
  test('cannot name a host key that the VM did not make', async () => {
    await init()
    const passed = await attempt()
    expect([passed.stdout, passed.code]).toEqual(['in\n', 0])
    service.lie = async (response, path) => {
      if (!path.endsWith('/attestation')) return response
      const body = (await response.json()) as Body
      const [hostname = ''] = (body.data.known_hosts ?? '').split(' ')
      return Response.json({ ...body, data: { ...body.data, known_hosts: `${hostname} ${sampleHostKey}` } })
    }
    const before = connections()
    const { stdout, stderr, code } = await attempt()
    expect([stdout, code]).toEqual(['', 1])
    expect(stderr).toContain('VERDICT: FAIL')
    expect(stderr).toContain('strongroom rm work')
    expect([connections(), readFileSync(config('known_hosts'), 'utf8')]).toEqual([before, ''])
    const cp = await strongroom('cp', join(home, '.ssh/id_ed25519.pub'), `${at('work')}:`, '--', ...place, ...batch)
    expect([cp.code, cp.stderr]).toEqual([2, expect.stringContaining('strongroom up work --no-login')])
    expect(connections()).toBe(before)
  })

  test('goal: after a FAIL of ssh nothing is copied either; a policy that refuses leaves the key', async () => {
    await init()
    await attempt()
    const line = readFileSync(config('known_hosts'), 'utf8')
    const strict = await strongroom('ssh', 'work', '--public-key', sampleHostKey)
    expect([strict.code, strict.stderr]).toEqual([6, expect.stringContaining('VERDICT: FAIL')])
    expect(readFileSync(config('known_hosts'), 'utf8')).toBe(line)
    service.lie = async (response, path) => {
      if (!path.endsWith('/attestation')) return response
      const body = (await response.json()) as Body
      const [hostname = ''] = (body.data.known_hosts ?? '').split(' ')
      return Response.json({ ...body, data: { ...body.data, known_hosts: `${hostname} ${sampleHostKey}` } })
    }
    const { stdout, stderr, code } = await strongroom('ssh', at('work'), '--', ...place, ...batch, 'echo in')
    expect([stdout, code, stderr]).toEqual(['', 1, expect.stringContaining('VERDICT: FAIL')])
    expect([line === '', readFileSync(config('known_hosts'), 'utf8')]).toEqual([false, ''])
    const cp = await strongroom('cp', join(home, '.ssh/id_ed25519.pub'), `${at('work')}:`, '--', ...place, ...batch)
    expect([cp.code, cp.stderr]).toEqual([2, expect.stringContaining('has no verified host key')])
  })

  // Goal: another machine at the address gets neither a login nor a file.
  test('cannot put another machine at the address', async () => {
    await init()
    service.hostKey = sampleHostKey
    const before = logins()
    const { stdout, stderr, code } = await attempt()
    expect([stdout, code]).toEqual(['', 255])
    expect(stderr).toContain('Host key verification failed')
    const cp = await strongroom('cp', join(home, '.ssh/id_ed25519.pub'), `${at('work')}:`, '--', ...place, ...batch)
    expect(cp.code).not.toBe(0)
    expect(logins()).toBe(before)
  })

  // Goal: no name, status, number or text of the host becomes an option or reaches the terminal as it is.
  test.each([
    ['an option as host name', { hostname: '-oProxyCommand=touch /tmp/x' }],
    ['another domain name', { hostname: 'localhost' }],
    ['another instance in the host name', { hostname: 'aaaaaaaa.acme.agents.example' }],
    ['a name of another form', { name: '../../x' }],
    ['a status with a control sequence', { status: '\u001b]0;owned\u0007' }],
    ['a time with a control sequence', { created_at: '\u001b[2J' }],
    ['another key', { public_key: sampleHostKey }],
  ])('%s is refused', async (_, change) => {
    await init()
    service.lie = recordLie('POST', change)
    const before = connections()
    const { stdout, stderr, code } = await attempt()
    expect([stdout, code, connections()]).toEqual(['', 1, before])
    expect(stderr).toContain('strongroom: ')
    expect(stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/)
    expect(existsSync(config('known_hosts'))).toBe(false)
  })

  test('goal: the words of a refusal are printed without control characters, and an unknown failure too', async () => {
    await init()
    const message = '\u001b]0;owned\u0007\u202eno\r\n'.repeat(100)
    service.lie = async () => Response.json({ error: { code: 'x', message } }, { status: 400 })
    const refused = await strongroom('up', 'other')
    expect([refused.code, refused.stderr.split('\n').length]).toEqual([2, 4])
    service.lie = recordLie('GET', { status: 'failed', failure_code: 'new_code', failure_message: message })
    const failed = await strongroom('up', 'other')
    expect([failed.code, failed.stderr]).toEqual([1, expect.stringContaining('failed: new_code: ')])
    for (const { stderr } of [refused, failed]) {
      expect(stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/)
    }
  })

  test('goal: a redirect does not take the key elsewhere, and a body without an end is not read', async () => {
    await init()
    let elsewhere = 0
    using other = Bun.serve({
      port: 0,
      hostname: '127.0.0.1',
      fetch: () => {
        elsewhere += 1
        return new Response('')
      },
    })
    service.lie = async () => Response.redirect(`http://127.0.0.1:${other.port}/`, 307)
    expect((await strongroom('ls')).code).toBe(1)
    service.lie = async () => new Response(new Uint8Array(1024 * 1024).fill(32))
    const { code, stderr } = await strongroom('usage')
    expect([code, stderr, elsewhere]).toEqual([1, expect.stringContaining('more than 65536 bytes'), 0])
  })

  test('goal: one instance under two names is refused', async () => {
    await init()
    await attempt()
    const { hostname } = JSON.parse(readFileSync(config('instances/work.json'), 'utf8'))
    service.lie = recordLie('POST', { name: hostname.split('.')[0], hostname })
    const { code, stderr } = await strongroom('up', 'second')
    expect([code, stderr]).toEqual([1, expect.stringContaining('which is work on this machine')])
  })
})

describe.skipIf(noSshd)('what goes wrong on the way', () => {
  test('goal: a response that is lost creates no second VM, and the next up goes on', async () => {
    await init()
    service.lie = async (response, _, method) => (method === 'POST' ? new Response('', { status: 502 }) : response)
    expect((await strongroom('up', 'work')).code).toBe(1)
    const listed = await strongroom('ls', '--json')
    expect(JSON.parse(listed.stdout).unfinished).toEqual(['work'])
    service.lie = null
    const { code, stdout } = await strongroom('up', 'work', '--no-login')
    expect([code, stdout]).toEqual([0, expect.stringContaining('work is ready and verified: ')])
    for (const option of ['GlobalKnownHostsFile=/dev/null', 'KnownHostsCommand=none', 'ControlPath=none'])
      expect(stdout).toContain(` -o ${option} `)
    const [first, second] = creates().map(({ idempotencyKey }) => idempotencyKey)
    expect([creates().length, first === second, typeof first]).toEqual([2, true, 'string'])
    const { instances } = JSON.parse((await strongroom('ls', '--json')).stdout)
    expect(instances.filter((row: { local_name: string }) => row.local_name === 'work')).toHaveLength(1)
  })

  test('goal: a failure has its code and what helps; the next up replaces the instance', async () => {
    await init()
    service.fate = 'failed'
    const { code, stderr } = await strongroom('up', 'work')
    expect([code, stderr]).toEqual([1, expect.stringContaining('failed: boot_timeout: The virtual machine did not')])
    expect(stderr).toContain('remedy: `strongroom up work` creates another one')
    const { hostname } = JSON.parse(readFileSync(config('instances/work.json'), 'utf8'))
    service.fate = 'ready'
    const again = await strongroom('up', 'work', '--no-login')
    expect([again.code, again.stderr]).toEqual([0, expect.stringContaining(`work: ${hostname} is failed`)])
    expect(service.appliance.instance(hostname.split('.')[0]).status).toBe('terminating')
    expect(again.stdout).not.toContain(hostname)
  })

  test('goal: a key for another organization creates nothing in place of an instance that it cannot see', async () => {
    await init()
    await strongroom('up', 'work', '--no-login')
    writeFileSync(join(home, 'other.txt'), service.appliance.keys.globex, { mode: 0o600 })
    service.requests.length = 0
    const { code, stderr } = await strongroom('up', 'work', '--key-file', join(home, 'other.txt'))
    expect([code, stderr]).toEqual([4, expect.stringContaining('for this key')])
    expect(creates()).toEqual([])
    expect(existsSync(config('instances/work.json'))).toBe(true)
    // It runs on, so its name and host key stay until the user says otherwise.
    const rm = await strongroom('rm', 'work', '--yes', '--key-file', join(home, 'other.txt'))
    expect([rm.code, rm.stderr]).toEqual([4, expect.stringContaining('it may still run, and be billed')])
    expect([existsSync(config('instances/work.json')), readFileSync(config('known_hosts'), 'utf8')]).toEqual([
      true,
      expect.stringContaining(server?.hostKey ?? 'none'),
    ])
    service.requests.length = 0
    const forgotten = await strongroom('rm', 'work', '--forget')
    expect([forgotten.code, forgotten.stdout, service.requests]).toEqual([
      0,
      expect.stringContaining('work: forgotten'),
      [],
    ])
    expect([readdirSync(config('instances')), readFileSync(config('known_hosts'), 'utf8')]).toEqual([['lock'], ''])
  })

  test('goal: a damaged file stops its own name alone, and ls says which', async () => {
    await init()
    await strongroom('up', 'work', '--no-login')
    writeFileSync(config('instances/other.json'), '{', { mode: 0o600 })
    const { code, stdout, stderr } = await strongroom('ls')
    expect([code, stdout, stderr]).toEqual([
      0,
      expect.stringContaining('\nwork '),
      expect.stringContaining('other.json'),
    ])
    expect((await strongroom('up', 'other')).code).toBe(2)
    expect((await strongroom('rm', 'work', '--yes')).code).toBe(0)
  })

  test('goal: an instance that was created elsewhere is taken by the name of the service', async () => {
    await init()
    const publicKey = server?.publicKey
    const { data } = await service.appliance.send('POST', '/v1/instances', { body: { public_key: publicKey } })
    const { code, stdout } = await strongroom('up', String(data.name), '--no-login')
    expect([code, stdout]).toEqual([0, expect.stringContaining(`${data.name} is ready and verified`)])
    expect(creates()).toEqual([])
  })
})
