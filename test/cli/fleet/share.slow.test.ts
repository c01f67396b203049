// strongroom fleet share between hosts of a fleet on a real PostgreSQL. The host that asks has a real gateway process
// with simulated evidence in place of a VM (rigs/enclave).

import { afterAll, beforeAll, describe, expect, setDefaultTimeout, setSystemTime, test } from 'bun:test'
import { createHash, generateKeyPairSync, sign } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { launchMeasurement } from '../../../scripts/rigs/enclave/workload.ts'
import { socketAddress } from '../../../scripts/rigs/fleet/two-machines.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { fromHex, toBase64Url, toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openControlKey } from '../../../src/enclave-host/control-key.ts'
import {
  encodeShareRequest,
  nonceOf,
  type ShareRequest,
  type SignedRequest,
  signedBytesOf,
} from '../../../src/fleet/shared-identity/request.codec.ts'
import { openOperatorKey } from '../../../src/host/operator-key.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { lockFile } from '../../../src/linux/lock.ts'
import { getOverTls } from '../../../src/linux/net/tls-get.ts'
import { checksOf, runHere } from '../../rigs/program.ts'

setDefaultTimeout(120_000)

type Answer = { readonly code: number; readonly document: Record<string, unknown> }

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('fleet share', () => {
  let server: PostgresServer
  let bench: EnclaveBench
  let dir: string
  let files: { root: string; policy: string }
  let gatewayUrl: string
  /** East has the secrets; west asks for them; south asks as well, and has no gateway. */
  let hosts: Record<'east' | 'west' | 'south', (...argv: string[]) => Promise<Answer>>

  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'srt-share-'))
    server = await startPostgres()
    bench = await EnclaveBench.start()
    gatewayUrl = bench.url((await bench.serve()).vmId)
    const database = await socketAddress(server)
    const host = (name: string, stateDir: string, listen: string) => {
      const config = join(dir, `${name}.toml`)
      writeFileSync(config, `[listen]\ninference = "${listen}"\n[fleet]\ndatabase = "${database}"\nname = "${name}"\n`)
      const variables = { STRONGROOM_STATE_DIR: stateDir, STRONGROOM_CONFIG: config }
      return async (...argv: string[]): Promise<Answer> => {
        const { code, stdout } = await runHere(['fleet', ...argv, '--json'], { variables })
        return { code, document: JSON.parse(stdout) }
      }
    }
    hosts = {
      west: host('west', bench.dir, new URL(gatewayUrl).host),
      east: host('east', join(dir, 'east'), ''),
      south: host('south', join(dir, 'south'), ''),
    }
    expect((await hosts.west('init')).code).toBe(0)
    for (const name of ['east', 'south'] as const) {
      expect((await hosts[name]('join')).code).toBe(0)
      await makeSecrets(join(dir, name))
    }
    await makeSecrets(bench.dir)
    const policy = { ...strictPolicy(), measurements: [fromHex(launchMeasurement) ?? new Uint8Array(0)] }
    files = { root: join(dir, 'root.pem'), policy: join(dir, 'policy.json') }
    writeFileSync(files.root, bench.host.rootPem)
    // The simulated platform's own: the operator key of the launch, as west's operator would hand it out.
    writeFileSync(files.policy, JSON.stringify(encodePolicy({ ...policy, idKeyDigest: bench.host.operatorKey })))
  })
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]()
    await server?.[Symbol.asyncDispose]()
    rmSync(dir, { recursive: true, force: true })
  })

  /** As the daemon's first start does. */
  async function makeSecrets(stateDir: string) {
    const { digest } = await openOperatorKey(stateDir)
    openControlKey(join(stateDir, 'control.key'))
    const names = ['strongroom.internal']
    await openAuthority({ kind: 'clients', stateDir, names, nowMs: systemClock.nowMs, random: systemRandom })
    return digest
  }

  const trusting = () => ['--trust-simulated-root', files.root, '--any-crl', '--any-tcb']
  let fileCount = 0
  const newFile = (name: string) => join(dir, `${name}-${fileCount++}`)

  async function requestOf(): Promise<{ path: string; request: ShareRequest }> {
    const path = newFile('request')
    expect(await hosts.west('share', 'request', path)).toMatchObject({ code: 0, document: { host_name: 'west' } })
    return { path, request: JSON.parse(readFileSync(path, 'utf8')) }
  }

  /** Exit code, the checks that failed, and whether there is a sealed file. */
  async function sealed(path: string, ...argv: string[]) {
    const file = newFile('sealed')
    const flags = argv.length === 0 ? ['--policy', files.policy, ...trusting()] : argv
    const { code, document } = await hosts.east('share', 'seal', path, file, ...flags)
    const failed = 'checks' in document ? checksOf(document, 'FAIL') : []
    return { code, failed, document, file, isThere: existsSync(file) }
  }

  async function sealedTo(request: ShareRequest) {
    const path = newFile('forged')
    writeFileSync(path, encodeShareRequest(request))
    return await sealed(path)
  }

  test('goal: a host asks, the other one judges its evidence and seals, and the secrets are in place there', async () => {
    const { path, request } = await requestOf()
    expect(request.workload).toBe(bench.workloadText)
    expect(readFileSync(path, 'utf8')).not.toContain('AGE-SECRET-KEY')
    const found = await sealed(path)
    expect(found).toMatchObject({ code: 0, failed: [], isThere: true, document: { ok: true, simulated: true } })
    const [digest, before] = [await makeSecrets(join(dir, 'east')), await makeSecrets(bench.dir)]
    expect(before).not.toEqual(digest)
    // With the service running, or another key expected, nothing changes.
    const open = (...argv: string[]) => hosts.west('share', 'open', found.file, ...argv)
    using running = lockFile(join(bench.dir, 'lock'))
    expect((await open('--operator-key', toHex(digest))).code).toBe(5)
    running.release()
    expect((await open('--operator-key', toHex(before))).document).toMatchObject({
      error: { code: 'invalid_request', message: expect.stringContaining('is expected') },
    })
    expect(await makeSecrets(bench.dir)).toEqual(before)
    // South cannot open it: it has asked for nothing.
    expect((await hosts.south('share', 'open', found.file, '--operator-key', toHex(digest))).code).toBe(4)

    expect(await open('--operator-key', toHex(digest))).toMatchObject({ code: 0, document: { from: 'east' } })
    for (const name of ['operator-key.pem', 'control.key', 'ca/ca.key', 'ca/ca.pem']) {
      const [ofWest, ofEast] = [bench.dir, join(dir, 'east')].map(at => readFileSync(join(at, name), 'utf8'))
      expect([name, ofWest]).toEqual([name, ofEast])
    }
    const { owned } = await openOperatorKey(bench.dir)
    expect(owned).toEqual([before, digest])
    // The request is answered: neither it nor its file is of use again.
    expect((await open('--operator-key', toHex(digest))).code).toBe(4)
    // Its gateway was launched for the control key of before: no new request until the VM is replaced.
    expect((await hosts.west('share', 'request', newFile('request'))).document).toMatchObject({
      error: { code: 'attest.unavailable', message: expect.stringContaining('another control key') },
    })
    writeFileSync(join(bench.dir, 'control.key'), readFileSync(await asideOf('control.key')))
  })

  async function asideOf(name: string): Promise<string> {
    const [directory = ''] = await Array.fromAsync(new Bun.Glob('share/before-*/control.key').scan(bench.dir))
    return join(bench.dir, directory, '..', name)
  }

  test('goal: whoever asks the public gateway for evidence of their own request gets nothing', async () => {
    const { request } = await requestOf()
    // A stranger's key and host, evidence of the genuine gateway for it, and a signature by a key of theirs.
    const { publicKey, privateKey } = generateKeyPairSync('ed25519')
    const { recipient } = request.asked
    const asked: SignedRequest = {
      ...request.asked,
      recipient: `${recipient.slice(0, -1)}${recipient.endsWith('q') ? 'p' : 'q'}`,
    }
    const { body } = await getOverTls({
      url: new URL(`/attestation?nonce=${toBase64Url(nonceOf(asked))}`, gatewayUrl),
      ca: undefined,
      timeoutMs: 30_000,
      bodyBytesMax: 2 * 1024 * 1024,
    })
    const attestation = Buffer.from(body).toString()
    const own = { control_key: publicKey.export({ format: 'jwk' }).x ?? '' }
    const signature = toBase64Url(new Uint8Array(sign(null, signedBytesOf(asked), privateKey)))
    const forged = await sealedTo({ ...request, ...own, asked, attestation, signature })
    expect(forged).toMatchObject({ code: 1, failed: ['request-control-key'], isThere: false })
    // With the host's control key named, and no signature by it.
    expect(await sealedTo({ ...request, asked, attestation, signature })).toMatchObject({
      failed: ['request-signature'],
      isThere: false,
    })
  })

  test('goal: a request that was changed, or has evidence of another moment, is refused', async () => {
    const [{ request }, { request: other }] = [await requestOf(), await requestOf()]
    const otherKey = await sealedTo({ ...request, asked: { ...request.asked, recipient: other.asked.recipient } })
    expect(otherKey.failed).toEqual(expect.arrayContaining(['request-signature', 'attestation-nonce']))
    const otherMoment = await sealedTo({ ...request, attestation: other.attestation })
    expect(otherMoment.failed).toEqual(['attestation-nonce'])
    const otherWorkload = JSON.stringify({ ...JSON.parse(request.workload), upstreams: [] })
    expect((await sealedTo({ ...request, workload: `${otherWorkload} ` })).isThere).toBe(false)
    const renamed = await sealedTo({ ...request, asked: { ...request.asked, host_name: 'north' } })
    expect(renamed.failed).toContain('fleet-host')
    expect([otherKey.isThere, otherMoment.isThere, renamed.isThere]).toEqual([false, false, false])
  })

  test('goal: evidence of another operator, of no trusted root, or with no operator named seals nothing', async () => {
    const { path } = await requestOf()
    const stranger = join(dir, 'stranger.json')
    const policy = { ...JSON.parse(readFileSync(files.policy, 'utf8')), idKeyDigest: 'cd'.repeat(48) }
    writeFileSync(stranger, JSON.stringify(policy))
    const other = await sealed(path, '--policy', stranger, ...trusting())
    expect([other.code, other.isThere]).toEqual([6, false])
    const untrusted = await sealed(path, '--policy', files.policy, '--any-crl', '--any-tcb')
    expect([untrusted.code, untrusted.isThere]).toEqual([1, false])
    const anybody = await sealed(path, '--measurement', launchMeasurement, ...trusting())
    expect([anybody.failed, anybody.isThere]).toEqual([['pin-allowlist'], false])
    expect(JSON.stringify(anybody.document)).toContain('no pin identifies the machine')
    const chip = await sealed(path, '--policy', files.policy, '--chip-id', 'ef'.repeat(64), ...trusting())
    expect([chip.code, chip.isThere]).toEqual([6, false])
  })

  test('goal: a request is good for an hour', async () => {
    const { path } = await requestOf()
    try {
      setSystemTime(Date.now() + 59 * 60_000)
      expect((await sealed(path)).isThere).toBe(true)
      setSystemTime(Date.now() + 2 * 60_000)
      const late = await sealed(path)
      expect([late.isThere, late.failed]).toEqual([false, expect.arrayContaining(['gateway/nonce'])])
    } finally {
      setSystemTime()
    }
  })

  test('goal: only the newest request opens its answer, and a damaged or foreign file says so', async () => {
    const first = await sealed((await requestOf()).path)
    const second = await sealed((await requestOf()).path)
    const digest = toHex(await makeSecrets(join(dir, 'east')))
    const open = (file: string) => hosts.west('share', 'open', file, '--operator-key', digest)
    expect(await open(first.file)).toMatchObject({ code: 2, document: { error: { code: 'invalid_request' } } })
    writeFileSync(first.file, 'no sealed file')
    expect((await open(first.file)).code).toBe(2)
    expect((await open(second.file)).code).toBe(0)
  })

  test('goal: bad input names what is wrong, and a file that exists is not written over', async () => {
    const bad = newFile('bad')
    writeFileSync(bad, '{"format":"strongroom/fleet-share-request/v1"}')
    expect((await sealed(bad)).document).toMatchObject({
      error: { code: 'invalid_request', message: expect.stringContaining('/asked') },
    })
    writeFileSync(bad, 'x'.repeat(9 * 1024 * 1024))
    expect((await sealed(bad)).code).toBe(2)
    const digest = createHash('sha256').update(files.policy).digest('hex')
    const there = newFile('there')
    writeFileSync(there, digest)
    expect((await hosts.east('share', 'seal', bad, there)).code).toBe(2)
    expect(readFileSync(there, 'utf8')).toBe(digest)
    // A host whose gateway has no VM has no evidence.
    expect((await hosts.south('share', 'request', newFile('request'))).document).toMatchObject({
      error: { code: 'attest.unavailable', message: expect.stringContaining('its gateway has no VM') },
    })
  })
})
