// strongroom client init: what it accepts, what it writes, and what it refuses without writing anything.

import { afterAll, beforeEach, describe, expect, test } from 'bun:test'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loadClientDefaults } from '../../../src/client/client-config.ts'
import { startCustomerService } from '../../rigs/instances/customer-service.ts'
import { ed25519Line, samplePublicKey } from '../../rigs/instances/instance-attestation.ts'
import { runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-client-init-'))
const service = await startCustomerService(dir)
afterAll(async () => {
  await service[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})

let home = ''
const folder = () => join(home, '.config/strongroom')
beforeEach(() => {
  home = mkdtempSync(join(dir, 'home-'))
  mkdirSync(join(home, '.ssh'))
  writeFileSync(join(home, '.ssh/id_ed25519.pub'), `${samplePublicKey}\n`)
  writeFileSync(join(home, '.ssh/id_a.pub'), `${ed25519Line(5)}\n`)
})

const files = join(dir, 'operator')
const digestOf = (path: string) => new Bun.CryptoHasher('sha256').update(readFileSync(path)).digest('hex')
/** Where the copy of a file is. */
const stored = (path: string, name: string, extension: string) =>
  join(folder(), `${name}-${digestOf(path).slice(0, 16)}.${extension}`)
const keyFile = join(dir, 'key.txt')
const own = ['--key-file', keyFile]
const init = (...argv: string[]) => runHere(['client', 'init', service.url, ...argv], { variables: { HOME: home } })
const whole = (...argv: string[]) => init(...service.initOptions, ...argv)

describe('with all files', () => {
  test('goal: it writes a file that the other commands take, for its owner alone, and shows what is trusted', async () => {
    const { code, stdout, stderr } = await whole()
    expect([code, stderr]).toEqual([0, ''])
    expect(stdout).toContain('accepts your key, which has 0 instance records')
    for (const name of ['ca.pem', 'instance/manifest.json', 'inference/manifest.json']) {
      if (name !== 'ca.pem') expect(stdout).toContain(`manifest.json with SHA-256 ${digestOf(join(files, name))}`)
    }
    expect(stdout).toContain('a SIMULATED root: no hardware attests what it signs')
    const defaults = await loadClientDefaults({ HOME: home })
    expect(defaults).toEqual({
      api: service.url,
      key_file: keyFile,
      public_key: join(home, '.ssh/id_ed25519.pub'),
      ca: stored(join(files, 'ca.pem'), 'ca', 'pem'),
      operator_key: '04'.repeat(48),
      image: stored(join(files, 'instance/manifest.json'), 'instance-manifest', 'json'),
      gateway_image: stored(join(files, 'inference/manifest.json'), 'inference-manifest', 'json'),
      trust_simulated_root: stored(join(files, 'root.pem'), 'simulated-root', 'pem'),
    })
    expect(statSync(folder()).mode & 0o777).toBe(0o700)
    for (const name of readdirSync(folder()))
      expect([name, statSync(join(folder(), name)).mode & 0o777]).toEqual([name, 0o600])
    expect(readFileSync(join(folder(), 'client.toml'), 'utf8')).not.toContain(service.appliance.keys.acme)
  })

  test('goal: a file that is there stays, unless --replace', async () => {
    mkdirSync(folder(), { recursive: true })
    writeFileSync(join(folder(), 'client.toml'), '# mine\n')
    const { code, stderr } = await whole()
    expect([code, stderr]).toEqual([2, expect.stringContaining('add --replace')])
    expect(readdirSync(folder())).toEqual(['client.toml'])
    expect((await whole('--replace')).code).toBe(0)
  })

  test('goal: --replace leaves the files that an earlier client.toml names', async () => {
    expect((await whole()).code).toBe(0)
    const earlier = (await loadClientDefaults({ HOME: home })).image ?? ''
    const text = readFileSync(earlier, 'utf8')
    const newer = join(home, 'manifest.json')
    writeFileSync(newer, text.replaceAll('a1'.repeat(32), 'b1'.repeat(32)))
    expect((await whole('--replace', '--image', newer)).code).toBe(0)
    const later = (await loadClientDefaults({ HOME: home })).image ?? ''
    expect([readFileSync(earlier, 'utf8'), readFileSync(later, 'utf8')]).toEqual([text, readFileSync(newer, 'utf8')])
    expect(later).not.toBe(earlier)
  })

  test('goal: without a gateway image it says what will not pass', async () => {
    const single = ['--ca', join(files, 'ca.pem'), '--image', join(files, 'instance'), '--key-file', keyFile]
    const { code, stdout } = await init(...single, '--operator-key', '04'.repeat(48))
    expect([code, stdout]).toEqual([0, expect.stringContaining('There is no gateway image')])
    expect((await loadClientDefaults({ HOME: home })).gateway_image).toBeUndefined()
    const open = await init(
      ...single,
      '--operator-key',
      '04'.repeat(48),
      '--replace',
      '--unattested-gateway',
      'no-worker',
    )
    expect([open.code, open.stdout.includes('no gateway image')]).toEqual([0, false])
    expect((await loadClientDefaults({ HOME: home })).unattested_gateway).toBe('no-worker')
  })
})

describe('bad input', () => {
  // Goal: the option is named, and nothing is written.
  test.each<[string, () => string[], number, string]>([
    ['no operator key', () => ['--files', files, '--key-file', keyFile], 2, 'add --operator-key FILE'],
    [
      'no image',
      () => [...own, '--operator-key', '04'.repeat(48), '--files', join(files, 'instance')],
      2,
      '--image FILE',
    ],
    ['no directory', () => [...own, '--files', keyFile], 2, 'it is no directory'],
    [
      'another image',
      () => [...service.initOptions, '--gateway-image', join(files, 'instance')],
      2,
      'it is the manifest of instance',
    ],
    ['no certificate', () => [...service.initOptions, '--ca', keyFile], 2, '--ca'],
    [
      'no simulated root',
      () => [...service.initOptions, '--trust-simulated-root', keyFile],
      2,
      '--trust-simulated-root',
    ],
    [
      'no key',
      () => service.initOptions.filter(word => !word.includes('key.txt') && word !== '--key-file'),
      2,
      'an API key is needed',
    ],
    ['a key as public key', () => [...service.initOptions, '--public-key', keyFile], 2, '--public-key'],
  ])('%s', async (_, argv, expected, message) => {
    const { code, stdout, stderr } = await init(...argv())
    expect([code, stdout, stderr]).toEqual([expected, '', expect.stringContaining(message)])
    expect(existsSync(folder())).toBe(false)
  })

  test('goal: a key file that others may read is refused, and a key that the service refuses too', async () => {
    const open = join(home, 'open.txt')
    writeFileSync(open, service.appliance.keys.acme)
    chmodSync(open, 0o640)
    const refused = await whole('--key-file', open)
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining(`chmod 600 ${open}`)])
    writeFileSync(open, 'ca_aaaaaaaa_aaaaaaaaaaaaaaaaaa')
    chmodSync(open, 0o600)
    const unknown = await whole('--key-file', open)
    expect([unknown.code, unknown.stderr]).toEqual([1, expect.stringContaining(`it was read from the file ${open}`)])
    expect(existsSync(folder())).toBe(false)
    expect((await whole('--key-file', open, '--no-check')).code).toBe(0)
  })

  test('goal: without an SSH key it says how to make one', async () => {
    rmSync(join(home, '.ssh'), { recursive: true })
    const { code, stderr } = await whole()
    expect([code, stderr]).toEqual([2, expect.stringContaining('ssh-keygen -t ed25519')])
  })
})
