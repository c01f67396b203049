// strongroom client init without the operator's files: what the host publishes about itself counts by the transparency
// log or by a person, and never on its own.

import { afterAll, beforeEach, describe, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openLogBench } from '../../../scripts/rigs/transparency.ts'
import { encodeNoteKey } from '../../../src/attest/log/note.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { loadClientDefaults } from '../../../src/client/client-config.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { logRoutes } from '../../../src/transparency/routes.ts'
import { startCustomerService } from '../../rigs/instances/customer-service.ts'
import { sampleMeasurement, samplePublicKey } from '../../rigs/instances/instance-attestation.ts'
import { cosign } from '../../rigs/log/log-server.ts'
import { newSigner } from '../../rigs/log/log-signer.ts'
import { runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-published-'))
const witness = newSigner('witness.example/w', 'cosignature')
const bench = openLogBench({ begins: false })
const log = bench.reopened({ witnesses: [witness.key] })
log.begin()
const service = await startCustomerService(dir, logRoutes({ log, admit: () => {} }))
const honest = service.published
afterAll(async () => {
  await service[Symbol.asyncDispose]()
  bench[Symbol.dispose]()
  rmSync(dir, { recursive: true })
})

let home = ''
const folder = () => join(home, '.config/strongroom')
beforeEach(() => {
  home = mkdtempSync(join(dir, 'home-'))
  mkdirSync(join(home, '.ssh'))
  writeFileSync(join(home, '.ssh/id_ed25519.pub'), `${samplePublicKey}\n`)
  Object.assign(service, { published: honest, lie: null })
  service.requests.length = 0
})

const key = ['--key-file', join(dir, 'key.txt')]
const operatorKey = '04'.repeat(48)
const known = ['--operator-key', operatorKey]
const init = (argv: readonly string[], answer?: string) =>
  runHere(['client', 'init', service.url, ...key, ...argv], {
    variables: { HOME: home },
    ...(answer === undefined ? {} : { answer }),
  })
/** The text of the file that client.toml names. */
const stored = async (field: 'image' | 'gateway_image') =>
  readFileSync((await loadClientDefaults({ HOME: home }))[field] ?? '', 'utf8')
const manifestDigest = (image: string) =>
  new Bun.CryptoHasher('sha256').update(readFileSync(join(dir, 'operator', image, 'manifest.json'))).digest('hex')

describe('at the first use', () => {
  test('goal: without a terminal nothing is trusted; the message has each digest and the ways on', async () => {
    const { code, stdout, stderr } = await init(known)
    expect([code, stdout, existsSync(folder())]).toEqual([2, '', false])
    for (const text of [manifestDigest('instance'), manifestDigest('inference'), 'over another channel', '--log-key'])
      expect(stderr).toContain(text)
    expect(stderr).not.toContain(operatorKey)
    // The API key is for a host that is trusted.
    expect(service.requests).toEqual(
      Array(2).fill({ method: 'GET', path: '/.well-known/strongroom', idempotencyKey: null }),
    )
  })

  test('goal: a person decides, and only y is yes', async () => {
    for (const answer of ['', 'n', 'yy', 'nobody']) {
      const { code, stderr } = await init(known, answer)
      expect([answer, code, stderr]).toEqual([answer, 2, expect.stringContaining('nothing was written')])
    }
    expect(existsSync(folder())).toBe(false)
    const { code, stderr } = await init(known, ' Y ')
    expect([code, stderr]).toEqual([0, expect.stringContaining('publishes about itself')])
    const { operator_key, log: url } = await loadClientDefaults({ HOME: home })
    expect([operator_key, url]).toEqual([operatorKey, undefined])
    expect(await stored('image')).toBe(honest.images.instance ?? '')
  })

  test('goal: --trust-first-use takes all of it, and files of one’s own go before it', async () => {
    const { code } = await init(['--trust-first-use', '--gateway-image', join(dir, 'operator/inference')])
    expect(code).toBe(0)
    const names = readdirSync(folder())
    const text = (start: string) =>
      readFileSync(join(folder(), names.find(name => name.startsWith(start)) ?? start), 'utf8')
    expect([text('operator-key-'), text('ca-')]).toEqual([honest.operator_key, honest.ca ?? ''])
  })

  test('goal: a host is not asked where files are named', async () => {
    expect((await init([...known, '--files', join(dir, 'operator')])).code).toBe(0)
    expect(service.requests.map(({ path }) => path)).toEqual(['/v1/instances'])
  })
})

describe('a host that lies', () => {
  // Goal: a document of another form is refused with a message of one harmless line, and nothing is written.
  test.each<[string, object, number, string]>([
    ['another format', { ...honest, format: '\u001b[2J' }, 1, '/format'],
    ['no object', { images: [] }, 1, '/format'],
    [
      'a manifest of another image',
      { ...honest, images: { ...honest.images, instance: honest.images.inference } },
      2,
      'the manifest of inference',
    ],
    [
      'a manifest that is none',
      { ...honest, images: { ...honest.images, instance: '\u001b[2J' } },
      2,
      'the published image',
    ],
    ['no image', { ...honest, images: { ...honest.images, instance: null } }, 2, 'image is missing'],
    ['no authority', { ...honest, ca: null }, 3, 'its certificate: '],
    ['no key', { ...honest, operator_key: honest.ca }, 2, 'the published operator-key'],
    ['more than there may be', { ...honest, more: 'x'.repeat(1_100_000) }, 3, 'larger than'],
  ])('%s', async (_, document, expected, message) => {
    Object.assign(service, { published: document })
    const { code, stdout, stderr } = await init(['--trust-first-use'])
    expect([code, stdout, stderr]).toEqual([expected, '', expect.stringContaining(message)])
    expect(stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/)
    expect(existsSync(folder())).toBe(false)
  })

  test('goal: an authority that did not issue its certificate is refused, and gets no key', async () => {
    const deps = { kind: 'clients' as const, stateDir: home, nowMs: Date.now, random: systemRandom }
    const other = await openAuthority({ ...deps, names: ['localhost'] })
    Object.assign(service, { published: { ...honest, ca: other.caPem } })
    const { code, stderr } = await init([...known, '--trust-first-use'])
    expect([code, stderr]).toEqual([3, expect.stringContaining('the API key was not sent')])
    expect(service.requests.every(({ path }) => path === '/.well-known/strongroom')).toBe(true)
  })
})

describe('the transparency log', () => {
  const logged = ['--log-key', encodeNoteKey(log.key() ?? witness.key), '--witness', encodeNoteKey(witness.key)]
  const ca = ['--ca', join(dir, 'operator/ca.pem')]

  test('goal: files without an entry are refused, each by its words; with entries that a witness saw they count', async () => {
    log.append({ kind: 'operator-key', sha384: operatorKey })
    await cosign(log, witness, Date.now())
    const absent = await init([...known, ...logged])
    expect([absent.code, absent.stderr]).toEqual([
      5,
      expect.stringContaining(`${manifestDigest('instance')}: the log has no entry`),
    ])
    log.append({ kind: 'image', measurement: toHex(sampleMeasurement) })
    await cosign(log, witness, Date.now())
    const gateway = await init([...known, ...logged])
    expect([gateway.code, gateway.stderr]).toEqual([5, expect.stringContaining(manifestDigest('inference'))])
    log.append({ kind: 'image', measurement: 'c1'.repeat(48) })
    await cosign(log, witness, Date.now())
    expect(existsSync(join(folder(), 'client.toml'))).toBe(false)
    const { code, stderr } = await init([...known, ...logged, ...ca])
    expect([code, stderr]).toEqual([0, ''])
    const { log: url, log_key, witness: witnesses } = await loadClientDefaults({ HOME: home })
    expect([url, ['--log-key', log_key, '--witness', witnesses?.[0]]]).toEqual([service.url, logged])
  })

  test('goal: a digest with an entry vouches for no other digest of its manifest, which is then not pinned', async () => {
    const manifest = JSON.parse(honest.images.inference ?? '')
    const { launchDigests } = manifest
    const inferenceWith = (digests: object) => {
      const inference = JSON.stringify({ ...manifest, launchDigests: digests })
      Object.assign(service, { published: { ...honest, images: { ...honest.images, inference } } })
    }
    const changed = 'e7'.repeat(48)
    for (const digests of [
      { ...launchDigests, 'qemu-kvm/bios/EPYC-v4/4': changed },
      { 'qemu-kvm/bios/EPYC-v4/4': changed, ...launchDigests },
    ]) {
      inferenceWith(digests)
      const { code, stdout, stderr } = await init([...known, ...logged, ...ca, '--replace'])
      expect([code, stderr, stdout]).toEqual([0, '', expect.stringContaining('kept with 1 of its 2 launch digests')])
      const kept = JSON.parse(await stored('gateway_image'))
      expect(kept).toEqual(manifest)
      expect(JSON.parse(await stored('image')).launchDigests).toEqual({
        'qemu-kvm/bios/EPYC-v4/2': toHex(sampleMeasurement),
      })
    }
    const many = Object.fromEntries(
      Array.from({ length: 65 }, (_, at) => [`x/${at}`, toHex(new Uint8Array(48).fill(at))]),
    )
    inferenceWith({ ...launchDigests, ...many })
    const refused = await init([...known, ...logged, ...ca, '--replace'])
    expect([refused.code, refused.stderr]).toEqual([5, expect.stringContaining('66 launch digests')])
  })

  test('goal: no log has authorities: one of the host needs a person, and before that no key is sent', async () => {
    const digest = expect.stringContaining("the authority of the API's certificate, SHA-256 ")
    const { code, stdout, stderr } = await init([...known, ...logged])
    expect([code, stdout, stderr]).toEqual([2, '', digest])
    expect(stderr).toContain('name the authority by --ca')
    expect(stderr).not.toContain(manifestDigest('instance'))
    expect((await init([...known, ...logged], 'n')).code).toBe(2)
    expect(service.requests.filter(({ path }) => path.startsWith('/v1/'))).toEqual([])
    expect(existsSync(join(folder(), 'client.toml'))).toBe(false)
    expect((await init([...known, ...logged], 'y')).code).toBe(0)
    expect((await init([...known, ...logged, '--replace', '--trust-first-use'])).code).toBe(0)
  })

  test('goal: an operator key of the host that the log does not have is refused', async () => {
    const { code, stderr } = await init(logged)
    expect([code, stderr]).toEqual([5, expect.stringContaining('the operator key, SHA-384 ')])
  })

  test('goal: a tree that only its owner signed is no check', async () => {
    const stranger = newSigner('other.example/w', 'cosignature')
    const { code, stderr } = await init([...known, ...logged.slice(0, 2), '--witness', encodeNoteKey(stranger.key)])
    expect([code, stderr]).toEqual([5, expect.stringContaining('log-witnessed')])
    for (const argv of [logged.slice(0, 2), logged.slice(2)]) {
      const stray = await init([...known, ...argv])
      expect([stray.code, stray.stderr]).toEqual([2, expect.stringContaining('name both --log-key and --witness')])
    }
    expect(existsSync(join(folder(), 'client.toml'))).toBe(false)
  })
})
