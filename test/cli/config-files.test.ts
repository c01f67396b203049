// Goal: config check reports, by field, each named file that is missing, unreadable, mismatched or expired.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeBuilderImage } from '../../scripts/rigs/build/image-directory.ts'
import { sampleParts, writeLaunchImage } from '../../scripts/rigs/launch/launch-image.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { checkFiles, type FileFinding } from '../../src/cli/config-files.driver.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { openAuthority } from '../../src/http/authority.ts'

const dayMs = 86_400_000
const nowMs = Date.now()
let dir: string
const at = (name: string) => join(dir, name)

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-config-files-'))
  chmodSync(dir, 0o755)
  const authority = await openAuthority({
    kind: 'clients',
    stateDir: dir,
    nowMs: () => nowMs,
    names: ['a.test'],
    random: systemRandom,
  })
  for (const name of ['a', 'b']) {
    const pair = await authority.issue(['a.test'], 60)
    writeFileSync(at(`${name}.pem`), pair.cert)
    writeFileSync(at(`${name}.key`), pair.key)
  }
  writeFileSync(at('ca.pem'), authority.caPem)
  writeFileSync(at('garbage'), 'garbage')
  mkdirSync(at('directory'))
  expect(Bun.spawnSync(['mkfifo', at('fifo')]).exitCode).toBe(0)
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const unasked = ['vm.image_dir', 'vm.qemu', 'inference.worker.image_dir']

/** Problems of a configuration whose other files are fine. */
function check(toml: string, atMs = nowMs): FileFinding[] {
  const verdict = parseConfig(toml, 'f')
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  return checkFiles(verdict.config, atMs).filter(({ field }) => !unasked.includes(field))
}

const tls = (certificate: string, key: string) =>
  `[tls]\ncertificate_file = "${at(certificate)}"\nkey_file = "${at(key)}"\n`
const upstream = (fields: string) =>
  `[[inference.upstreams]]\nname = "u"\nurl = "https://u.test/v1"\nmodels = ["m"]\n${fields}\n`

test('goal: a good pair, a good authority and a good key are no findings', () => {
  writeFileSync(at('api.key'), 'secret\n')
  expect(
    check(`${tls('a.pem', 'a.key')}${upstream(`ca_file = "${at('ca.pem')}"\nkey_file = "${at('api.key')}"`)}`),
  ).toEqual([])
})

// Goal: what is wrong with a certificate or key is a problem of its own field.
test.each([
  ['no such certificate', 'none.pem', 'a.key', 'tls.certificate_file', 'none.pem does not exist'],
  ['no such key', 'a.pem', 'none.key', 'tls.key_file', 'none.key does not exist'],
  ['the key of another certificate', 'a.pem', 'b.key', 'tls.key_file', 'does not belong to the certificate'],
  ['a key that is none', 'a.pem', 'garbage', 'tls.key_file', 'the private key cannot be read'],
  ['a certificate that is none', 'garbage', 'a.key', 'tls.certificate_file', 'holds no PEM certificate'],
  ['a directory', 'directory', 'a.key', 'tls.certificate_file', 'is not a regular file'],
  ['a FIFO, which is not waited for', 'fifo', 'a.key', 'tls.certificate_file', 'is not a regular file'],
  ['an authority', 'ca.pem', 'ca/ca.key', 'tls.certificate_file', 'is a CA'],
])('goal: tls, %s: a problem of its field', (_, certificate, key, field, words) => {
  const found = check(tls(certificate, key))
  expect(found).toMatchObject([{ kind: 'problem', field }])
  expect(found[0]?.message).toContain(words)
  // A key never shows in a message.
  expect(JSON.stringify(found)).not.toContain('BEGIN')
})

test('goal: both files missing are two problems', () => {
  expect(check(tls('x', 'y')).map(({ field }) => field)).toEqual(['tls.certificate_file', 'tls.key_file'])
})

// Goal: dates are warnings.
test.each([
  ['expired', 61 * dayMs, 'expired at'],
  ['about to expire', 50 * dayMs, 'expires at'],
  ['not valid yet', -2 * dayMs, 'not valid before'],
])('goal: a certificate that is %s is a warning', (_, offsetMs, words) => {
  const found = check(tls('a.pem', 'a.key'), nowMs + offsetMs)
  expect(found).toMatchObject([{ kind: 'warning', field: 'tls.certificate_file' }])
  expect(found[0]?.message).toContain(words)
})

test('goal: files of the traces are problems of their own fields, and no message repeats a header', () => {
  const traces = (fields: string) => `[inference.traces]\nendpoint = "https://otlp.test/v1/traces"\n${fields}\n`
  const good = `headers_file = "${at('headers')}"\nca_file = "${at('ca.pem')}"`
  writeFileSync(at('headers'), 'authorization: Bearer sk-canary\n')
  const [headers, ca] = ['inference.traces.headers_file', 'inference.traces.ca_file']
  const ofTraces = (toml: string) => check(toml).filter(({ field }) => field.startsWith('inference.traces'))
  expect(ofTraces(traces(good))).toEqual([])
  expect(ofTraces(traces(`headers_file = "${at('none')}"\nca_file = "${at('fifo')}"`))).toMatchObject([
    { kind: 'problem', field: headers },
    { kind: 'problem', field: ca },
  ])
  expect(ofTraces(traces(`ca_file = "${at('garbage')}"`))).toMatchObject([{ kind: 'problem', field: ca }])
  writeFileSync(at('headers'), 'sk-canary')
  const found = ofTraces(traces(good))
  expect(found).toMatchObject([{ kind: 'problem', field: headers }])
  expect(JSON.stringify(found)).not.toContain('sk-canary')
  expect(ofTraces(`[listen]\ninference = ""\n${traces(good)}`)).toEqual([])
})

test('goal: a file without the password of the proxy is a problem of its field, and no message repeats a password', () => {
  const field = 'network.proxy.password_file'
  const proxy = (file: string) =>
    `[network.proxy]\nurl = "http://p.test:3128"\nuser = "u"\npassword_file = "${at(file)}"\n`
  writeFileSync(at('proxy-password'), 'pw-canary\n')
  expect(check(proxy('proxy-password'))).toEqual([])
  writeFileSync(at('empty'), '\n')
  writeFileSync(at('long'), 'pw-canary'.repeat(1_000))
  for (const file of ['none', 'fifo', 'directory', 'empty', 'long']) {
    const found = check(proxy(file))
    expect([file, found]).toMatchObject([file, [{ kind: 'problem', field }]])
    expect(JSON.stringify(found)).not.toContain('pw-canary')
  }
})

test('goal: files of an upstream are problems of their own fields; with the gateway off nothing of it is read', () => {
  const toml = upstream(`ca_file = "${at('none')}"\nkey_file = "${at('none')}"`)
  const fields = ['inference.upstreams.0.key_file', 'inference.upstreams.0.ca_file']
  expect(check(toml)).toMatchObject(fields.map(field => ({ kind: 'problem', field })))
  expect(check(upstream(`ca_file = "${at('garbage')}"`))).toMatchObject([{ kind: 'problem', field: fields[1] }])
  expect(check(`[listen]\ninference = ""\n${toml}`)).toEqual([])
})

test('goal: what the daemon starts without is a warning: images, model, firmware, QEMU', () => {
  const verdict = parseConfig(
    `[vm]\nimage_dir = "/none/i"\nqemu = "/none/q"\nfirmware = "/none/f"\n[inference.worker]\nmodel_file = "/none/m"\nimage_dir = "/none/w"\n`,
    'f',
  )
  if (!verdict.ok) throw new Error('the configuration is valid')
  expect(checkFiles(verdict.config, nowMs).map(({ kind, field }) => `${kind} ${field}`)).toEqual([
    'warning vm.image_dir',
    'warning vm.qemu',
    'warning vm.firmware',
    'warning inference.worker.model_file',
    'warning inference.worker.image_dir',
  ])
})

test('goal: a shape that the image has no launch digest for is a warning that names the shapes that there are', async () => {
  const image = at('image')
  mkdirSync(image)
  const { manifest } = await writeLaunchImage(image)
  const of = (vm: string) => {
    const verdict = parseConfig(`[vm]\nimage_dir = "${image}"\n${vm}`, 'f')
    if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
    return checkFiles(verdict.config, nowMs).filter(
      ({ field }) => !['vm.qemu', 'inference.worker.image_dir'].includes(field),
    )
  }
  expect(of('vcpus = 2\n')).toEqual([])
  const [warning, ...more] = of('vcpus = 3\n')
  expect([warning?.kind, warning?.field, more]).toEqual(['warning', 'vm.vcpus', []])
  expect(warning?.message).toContain('it has bios/EPYC-v4/1, bios/EPYC-v4/2')
  // An image of an earlier release has none at all.
  const { launchDigests: _, ...old } = manifest
  writeFileSync(join(image, 'manifest.json'), JSON.stringify(old))
  const [unread] = of('')
  expect([unread?.field, unread?.message.includes('launchDigests')]).toEqual(['vm.image_dir', true])
})

test('goal: a gateway in a VM needs an image of its kind, measured for its shape; one on the host the root of its worker alone', async () => {
  const [gateway, other] = [at('gateway'), at('other')]
  for (const directory of [gateway, other]) mkdirSync(directory)
  await writeLaunchImage(gateway, { ...sampleParts, name: 'inference' })
  await writeLaunchImage(other)
  const of = (toml: string) => {
    const verdict = parseConfig(toml, 'f')
    if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
    const found = checkFiles(verdict.config, nowMs).filter(({ field }) => field.startsWith('inference.'))
    return found.map(({ kind, field, message }) => [
      kind,
      field,
      /holds the image|has no launch digest/.exec(message)?.[0],
    ])
  }
  const worker = (directory: string) => `[inference.worker]\nimage_dir = "${directory}"\n`
  expect(of(worker(gateway))).toEqual([])
  expect(of(worker(other))).toEqual([['warning', 'inference.worker.image_dir', 'holds the image']])
  expect(of(`[inference]\nvcpus = 3\n${worker(gateway)}`)).toEqual([
    ['warning', 'inference.vcpus', 'has no launch digest'],
  ])
  expect(of(`[inference]\nplacement = "host"\n${worker(other)}`)).toEqual([])
  expect(of(`[listen]\ninference = ""\n${worker(other)}`)).toEqual([])
})

test('goal: with service C on, its image, shape and authorities are looked at; with it off, nothing of it', async () => {
  const [builder, instance] = [at('builder'), at('instance')]
  await writeBuilderImage(builder, 3)
  mkdirSync(instance)
  await writeLaunchImage(instance)
  const on = '[listen]\nbuilds = "127.0.0.1:8443"\n'
  const of = (fields: string, listen = on) =>
    check(`${listen}[builds]\nfetch_hosts = ["git.example"]\n${fields}\n`).map(({ kind, field }) => `${kind} ${field}`)
  const image = (path: string) => `image_dir = "${path}"`
  expect(of(`${image(builder)}\nfetch_ca_file = "${at('ca.pem')}"`)).toEqual([])
  expect(of(image('/none/b'))).toEqual(['warning builds.image_dir'])
  expect(of(image(instance))).toEqual(['warning builds.image_dir'])
  expect(of(`${image(builder)}\nvcpus = 3`)).toEqual(['warning builds.vcpus'])
  for (const path of ['nothing', 'garbage', 'fifo', 'directory']) {
    expect([path, of(`${image(builder)}\nfetch_ca_file = "${at(path)}"`)]).toEqual([
      path,
      ['problem builds.fetch_ca_file'],
    ])
  }
  expect(of(`${image('/none/b')}\nfetch_ca_file = "/none/ca"`, '[listen]\nbuilds = ""\n')).toEqual([])
})
