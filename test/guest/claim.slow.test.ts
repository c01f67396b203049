import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { dirname } from 'node:path'
import {
  attestedGateway,
  gatewayCa,
  listTree,
  loggedIn,
  makeClaim,
  makeCustomerKey,
  makeParts,
  makeSandbox,
  type Overrides,
  type Sandbox,
  seal,
  sshArgv,
  succeed,
} from '../../scripts/rigs/guest/root.ts'
import { until } from '../../scripts/rigs/until.ts'
import { endpointBaseUrl } from '../../src/guest/gateway/address.ts'

const waitMs = 30_000

describe('a claim', () => {
  // Goal: after a claim the customer logs in over real SSH against the announced host key, and nobody else does.
  test('lets its customer in', async () => {
    await using sandbox = await makeSandbox()
    const customer = makeCustomerKey(sandbox)
    const { claiming, identity } = await makeParts(sandbox)
    const sealed = seal(makeClaim(customer.publicKey), identity.boxKey)
    expect(await claiming.claim(sealed, identity)).toEqual({ ok: true, claimId: 'claim-1' })
    expect(claiming.record()?.claimId ?? null).toBe('claim-1')

    const login = { keyPath: customer.path, hostKey: identity.sshHostKey, command: 'echo in' }
    expect(await loggedIn(sandbox, login)).toBe('in\n')
    const environment = succeed(sshArgv(sandbox, { ...login, command: 'echo "$OPENAI_BASE_URL $OPENAI_API_KEY"' }))
    const key = fs.readFileSync(sandbox.paths.gatewayKey, 'utf8').trim()
    expect(key).toMatch(/^gw_[a-z0-9]{8}_[a-z0-9]{32}$/)
    expect(environment).toBe(`${endpointBaseUrl} ${key}\n`)
    const stranger = `${sandbox.root}/stranger`
    succeed(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', stranger])
    expect(Bun.spawnSync(sshArgv(sandbox, { ...login, keyPath: stranger })).stderr.toString()).toContain(
      'Permission denied',
    )
    expect(fs.statSync(sandbox.paths.sshHostKey).mode & 0o777).toBe(0o600)
    expect(fs.readFileSync(sandbox.paths.kernelHostname, 'utf8')).toBe('abcd1234')
  })

  // Goal: the same claim again, freshly sealed, is answered the same and changes nothing; another one is refused.
  test('is made once', async () => {
    await using sandbox = await makeSandbox()
    const { publicKey } = makeCustomerKey(sandbox)
    const { publicKey: otherKey } = makeCustomerKey(sandbox, 'other')
    const { claiming, identity } = await makeParts(sandbox)
    const claim = makeClaim(publicKey)
    const first = await claiming.claim(seal(claim, identity.boxKey), identity)
    const tree = listTree(sandbox.root).filter(notLog)
    expect(await claiming.claim(seal(claim, identity.boxKey), identity)).toEqual(first)
    const { inference } = claim
    const others = {
      claimId: 'claim-2',
      organization: 'other',
      name: 'zzzz9999',
      hostname: 'zzzz9999.acme.example.test',
      publicKey: otherKey,
      egress: { limitBytes: 1, names: 'listed' },
    }
    const otherInference = {
      baseUrl: 'http://gateway.example:8442/v1',
      address: '192.0.2.2',
      model: 'vendor/model-2',
      gateway: { kind: 'unattested', why: 'elsewhere', ca: null },
      drawsKey: false,
    }
    // Fields added to the claim later count too.
    expect([Object.keys(others), Object.keys(otherInference)].map(names => names.sort())).toEqual([
      Object.keys(claim)
        .filter(name => name !== 'inference')
        .sort(),
      Object.keys(inference).sort(),
    ])
    for (const change of [
      ...Object.entries(others).map(([name, value]) => ({ [name]: value })),
      ...Object.entries(otherInference).map(([name, value]) => ({ inference: { ...inference, [name]: value } })),
    ]) {
      const answer = await claiming.claim(seal({ ...claim, ...change }, identity.boxKey), identity)
      expect([change, answer]).toMatchObject([change, { ok: false, code: 'claimed' }])
    }
    expect(listTree(sandbox.root).filter(notLog)).toEqual(tree)
  })

  // Goal: what was not sealed to this guest, or changed on the way, or is no claim, is refused and touches nothing.
  test('opens only when whole and ours', async () => {
    await using sandbox = await makeSandbox()
    const { publicKey } = makeCustomerKey(sandbox)
    const { claiming, identity } = await makeParts(sandbox)
    const other = await makeParts(sandbox)
    const claim = makeClaim(publicKey)
    const sealed = seal(claim, identity.boxKey)
    const flipped = Uint8Array.fromBase64(sealed.box)
    flipped[20] = (flipped[20] ?? 0) ^ 1
    const tree = listTree(sandbox.root)
    for (const bad of [
      seal(claim, other.identity.boxKey),
      { ...sealed, box: flipped.toBase64() },
      { ...sealed, box: sealed.box.slice(0, -4) },
      { ...sealed, box: '' },
      { ...sealed, box: '****' },
      { ...sealed, nonce: 'A'.repeat(32) },
      { ...sealed, ephemeralKey: identity.boxKey },
      { ...sealed, ephemeralKey: `${'A'.repeat(43)}=` },
      seal('text', identity.boxKey),
      seal(Uint8Array.of(0xff), identity.boxKey),
      seal({ ...claim, more: 1 }, identity.boxKey),
      seal({ ...claim, name: 'UPPERCASE' }, identity.boxKey),
      seal({ ...claim, publicKey: `command="id" ${publicKey}` }, identity.boxKey),
    ]) {
      expect(await claiming.claim(bad, identity)).toMatchObject({ ok: false, code: 'bad_claim' })
    }
    expect(listTree(sandbox.root)).toEqual(tree)
    expect(claiming.record()?.claimId ?? null).toBeNull()
  })
})

describe('a claim that fails', () => {
  const obstacles: [string, (sandbox: Sandbox) => string, Overrides][] = [
    ['the home directory', ({ paths }) => block(paths.loginHome, 'file'), {}],
    ['the host name file', ({ paths }) => block(paths.hostname), {}],
    ['the hosts file', ({ paths }) => block(paths.hosts), {}],
    ['the keys of sshd', ({ paths }) => block(paths.authorizedKeys), {}],
    ['the kernel', ({ paths }) => block(paths.kernelHostname), {}],
    ['the claim record', ({ paths }) => block(paths.claimRecord), {}],
    ['a missing sshd', () => '', { sshd: { argv: ['/nonexistent/sshd'] } }],
    ['a missing endpoint of the gateway', () => '', { gateway: { argv: ['/nonexistent/gateway'] } }],
    ['the file of the gateway', ({ paths }) => block(paths.gatewaySettings), {}],
  ]

  // Goal: a failure at any step leaves everything as it was, the response holds nothing of the claim, and a second try
  // can succeed.
  test.each(obstacles)('at %s', async (_at, plant, overrides) => {
    await using sandbox = await makeSandbox()
    const customer = makeCustomerKey(sandbox)
    const { claiming, identity } = await makeParts(sandbox, overrides)
    fs.mkdirSync(sandbox.paths.sshdRunDir)
    const whole = listTree(sandbox.root)
    const planted = plant(sandbox)
    const before = listTree(sandbox.root)
    const claim = makeClaim(customer.publicKey)
    const answer = await claiming.claim(seal(claim, identity.boxKey), identity)
    expect(answer).toMatchObject({ ok: false, code: 'failed' })
    for (const secret of ['gw_', customer.publicKey, claim.organization]) {
      expect(JSON.stringify(answer)).not.toContain(secret)
    }
    expect(listTree(sandbox.root).filter(notLog)).toEqual(before.filter(notLog))
    expect(claiming.record()?.claimId ?? null).toBeNull()

    unblock(planted)
    expect(listTree(sandbox.root).filter(notLog)).toEqual(whole.filter(notLog))
    const again = await makeParts(sandbox)
    expect(await again.claiming.claim(seal(claim, again.identity.boxKey), again.identity)).toMatchObject({ ok: true })
    const login = { keyPath: customer.path, hostKey: again.identity.sshHostKey, command: 'echo in' }
    expect(await loggedIn(sandbox, login)).toBe('in\n')
  })
})

describe('sshd', () => {
  // Goal: one that ends at once is started again; the claim is in force all the same.
  test('may come late', async () => {
    await using sandbox = await makeSandbox()
    const customer = makeCustomerKey(sandbox)
    const late = `${sandbox.root}/late`
    // It ends once its number is recorded: before that, the claim would fail.
    const started = `until test -s ${sandbox.paths.sshdRecord}; do sleep 0.02; done`
    const script = `test -e ${late} || { touch ${late}; ${started}; exit 1; }; exec "$@"`
    const argv = ['sh', '-c', script, 'sh', ...sandbox.sshdArgv] as const
    const { claiming, identity } = await makeParts(sandbox, { sshd: { argv } })
    const claim = seal(makeClaim(customer.publicKey), identity.boxKey)
    expect(await claiming.claim(claim, identity)).toMatchObject({ ok: true })
    const login = { keyPath: customer.path, hostKey: identity.sshHostKey, command: 'echo in' }
    expect(await loggedIn(sandbox, login)).toBe('in\n')
  })

  // Goal: a dead sshd comes back by itself, and the customer gets in again.
  test('is restarted', async () => {
    await using sandbox = await makeSandbox()
    const customer = makeCustomerKey(sandbox)
    const { claiming, identity, sshd } = await makeParts(sandbox)
    await claiming.claim(seal(makeClaim(customer.publicKey), identity.boxKey), identity)
    const pid = sshdPid(sandbox)
    process.kill(pid, 'SIGKILL')
    const login = { keyPath: customer.path, hostKey: identity.sshHostKey, command: 'echo in' }
    await until(
      'in again',
      waitMs,
      () => sshdPid(sandbox) !== pid && Bun.spawnSync(sshArgv(sandbox, login)).exitCode === 0,
    )
    await sshd.stop()
    expect(Bun.spawnSync(sshArgv(sandbox, login)).exitCode).toBe(255)
  })
})

describe('the endpoint of the gateway', () => {
  // Goal: a claim starts it and leaves the trust store alone; it answers on loopback, restarts when it dies, and ends
  // with an undone claim.
  test('runs after the claim', async () => {
    await using sandbox = await makeSandbox()
    const { publicKey } = makeCustomerKey(sandbox)
    const { claiming, identity, gateway } = await makeParts(sandbox)
    await claiming.claim(seal(makeClaim(publicKey), identity.boxKey), identity)
    expect(fs.readFileSync(sandbox.paths.caBundle, 'utf8')).toBe('authorities of the image\n')
    expect(fs.readdirSync(`${sandbox.root}/etc/ssl/certs`)).toEqual(['ca-certificates.crt'])
    const answers = async () => {
      const response = await fetch(`http://127.0.0.1:${sandbox.gatewayPort}/elsewhere`).catch(() => null)
      return response?.status === 404
    }
    await until('it answers', waitMs, answers)
    const pid = pidIn(sandbox.paths.gatewayRecord)
    process.kill(pid, 'SIGKILL')
    const isBack = async () => pidIn(sandbox.paths.gatewayRecord) !== pid && (await answers())
    await until('it is back', waitMs, isBack)
    await gateway.stop()
    expect(await answers()).toBe(false)
  })

  // Goal: without a gateway there is no endpoint; a VM with a report device refuses a claim with a simulated root.
  test('only where the claim names one', async () => {
    await using sandbox = await makeSandbox()
    const { publicKey } = makeCustomerKey(sandbox)
    const inference = { baseUrl: '', address: null, model: '', gateway: { kind: 'none' }, drawsKey: false } as const
    const { claiming, identity } = await makeParts(sandbox, { platform: 'snp' })
    const simulated = {
      ...makeClaim(publicKey).inference,
      baseUrl: 'https://gateway.example.test/v1',
      gateway: { ...attestedGateway, simulatedRoot: gatewayCa },
    }
    const refused = makeClaim(publicKey, { inference: simulated })
    expect(await claiming.claim(seal(refused, identity.boxKey), identity)).toEqual({
      ok: false,
      code: 'bad_claim',
      message: 'claim.inference.gateway.simulatedRoot: this VM has a report device',
    })
    await claiming.claim(seal(makeClaim(publicKey, { inference }), identity.boxKey), identity)
    expect(fs.existsSync(sandbox.paths.gatewayRecord)).toBe(false)
  })
})

describe('a successor of a dead agent', () => {
  // Goal: it takes over the same sshd, knows the claim under its new box key, and refuses another one.
  test('finds the claim in force', async () => {
    await using sandbox = await makeSandbox()
    const customer = makeCustomerKey(sandbox)
    const claim = makeClaim(customer.publicKey)
    const first = await makeParts(sandbox)
    await first.claiming.claim(seal(claim, first.identity.boxKey), first.identity)
    const pids = () => [sshdPid(sandbox), pidIn(sandbox.paths.gatewayRecord)]
    const before = pids()

    const second = await makeParts(sandbox)
    await second.claiming.restore()
    expect(pids()).toEqual(before)
    expect(second.claiming.record()?.claimId ?? null).toBe('claim-1')
    expect(second.identity.boxKey).not.toBe(first.identity.boxKey)
    expect(second.identity.sshHostKey).toBe(first.identity.sshHostKey)
    expect(second.identity.bootId).toBe(first.identity.bootId)
    expect(await second.claiming.claim(seal(claim, second.identity.boxKey), second.identity)).toMatchObject({
      ok: true,
    })
    const other = seal({ ...claim, claimId: 'claim-2' }, second.identity.boxKey)
    expect(await second.claiming.claim(other, second.identity)).toMatchObject({ ok: false, code: 'claimed' })
  })

  // Goal: with sshd dead too, it starts a new one.
  test('starts sshd where it is missing', async () => {
    await using sandbox = await makeSandbox()
    const customer = makeCustomerKey(sandbox)
    const first = await makeParts(sandbox)
    await first.claiming.claim(seal(makeClaim(customer.publicKey), first.identity.boxKey), first.identity)
    await first.sshd.stop()
    const second = await makeParts(sandbox)
    await second.claiming.restore()
    const login = { keyPath: customer.path, hostKey: second.identity.sshHostKey, command: 'echo in' }
    expect(await loggedIn(sandbox, login)).toBe('in\n')
  })

  // Goal: of a claim that its agent did not live to finish nothing stays, neither key nor sshd; a new claim succeeds.
  test('clears what was left half done', async () => {
    await using sandbox = await makeSandbox()
    const customer = makeCustomerKey(sandbox)
    const first = await makeParts(sandbox)
    const claim = makeClaim(customer.publicKey)
    await first.claiming.claim(seal(claim, first.identity.boxKey), first.identity)
    const pid = sshdPid(sandbox)
    const gatewayPid = pidIn(sandbox.paths.gatewayRecord)
    fs.rmSync(sandbox.paths.claimRecord)

    const second = await makeParts(sandbox)
    await second.claiming.restore()
    expect(second.claiming.record()?.claimId ?? null).toBeNull()
    for (const value of [pid, gatewayPid]) expect(fs.existsSync(`/proc/${value}/exe`)).toBe(false)
    expect(listTree(sandbox.root).join()).not.toContain('gw_00000000_secret')
    expect(fs.existsSync(sandbox.paths.authorizedKeys)).toBe(false)
    expect(fs.existsSync(sandbox.paths.gatewaySettings)).toBe(false)
    const other = seal(makeClaim(customer.publicKey, { claimId: 'claim-2' }), second.identity.boxKey)
    expect(await second.claiming.claim(other, second.identity)).toEqual({ ok: true, claimId: 'claim-2' })
  })
})

/** Puts something in the way at `path`; what was there goes aside. */
function block(path: string, kind: 'file' | 'directory' = 'directory'): string {
  if (fs.existsSync(path)) fs.renameSync(path, `${path}.aside`)
  if (kind === 'file') fs.writeFileSync(path, '')
  else fs.mkdirSync(`${path}/in-the-way`, { recursive: true })
  return path
}

function unblock(path: string): void {
  if (path === '') return
  fs.rmSync(path, { recursive: true })
  if (fs.readdirSync(dirname(path)).some(name => `${dirname(path)}/${name}` === `${path}.aside`)) {
    fs.renameSync(`${path}.aside`, path)
  }
}

const notLog = (line: string) => !line.startsWith('sshd.log') && !line.startsWith('run/strongroom/log')

function sshdPid(sandbox: Sandbox): number {
  return pidIn(sandbox.paths.sshdRecord)
}

function pidIn(record: string): number {
  return JSON.parse(fs.readFileSync(record, 'utf8')).pid
}
