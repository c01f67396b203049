// Goal: `strongroom igvm` builds files that measure as their parts do, and shows whether a kernel is the committed one.

import { afterAll, expect, test } from 'bun:test'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeLaunchImage } from '../../../scripts/rigs/launch/launch-image.ts'
import { signIdBlock } from '../../../src/attest/launch/id-block-sign.ts'
import { fromHex } from '../../../src/base/bytes.ts'
import { checksOf, expectUsageError, run, runJson, vectors } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-igvm-'))
afterAll(() => rmSync(dir, { recursive: true }))

const firmware = join(vectors, 'ovmf/ovmf_AmdSev_suffix.bin')
const sample = join(vectors, 'igvm/bz-x64-vtl0-encrypted.igvm')

function file(name: string, content: string | Uint8Array): string {
  const path = join(dir, name)
  writeFileSync(path, content)
  return path
}

const kernel = file('kernel', 'kernel')
const initrd = file('initrd', 'initrd')
const cmdline = 'console=ttyS0 root_hash=00ff'
const parts = [
  ...['--firmware', firmware, '--kernel', kernel, '--initrd', initrd, '--cmdline', cmdline],
  ...['--vcpus', '2', '--vcpu-type', 'EPYC-v4', '--features', '0x1'],
]
const out = join(dir, 'image.igvm')

test('goal: a built file measures as the launch of its parts, and is the same file each time', async () => {
  const built = await runJson('igvm', 'build', ...parts, '--out', out)
  const bytes = readFileSync(out)
  const launch = await runJson('measure', 'ovmf', ...parts, '--vehicle', 'igvm')
  const measured = await runJson('measure', 'igvm', out, '--profile', 'qemu-kvm')
  expect([built.code, launch.code, measured.code]).toEqual([0, 0, 0])
  expect([built.document.digest, measured.document.digest]).toEqual([launch.document.digest, launch.document.digest])
  expect(built.document).toMatchObject({ file: out, size_bytes: bytes.length, profile: 'qemu-kvm' })
  expect(built.document.sha256).toBe(new Bun.CryptoHasher('sha256').update(bytes).digest('hex'))
  const again = await run('igvm', 'build', ...parts, '--out', out)
  expect([again.code, again.stdout.includes(`digest:  ${launch.document.digest}\n`)]).toEqual([0, true])
  expect(readFileSync(out).equals(bytes)).toBe(true)
})

test('goal: show prints what a file holds and compares each part that is given with the committed one', async () => {
  await run('igvm', 'build', ...parts, '--out', out)
  const shown = await runJson('igvm', 'show', out)
  expect([shown.code, shown.document]).toMatchObject([
    0,
    { policy: { value: '0x30000', set: ['smt', 'reservedOne'] }, vmsas: 2, firmware: { size_bytes: 4096 } },
  ])
  expect(shown.document).not.toHaveProperty('ok')
  const same = await run('igvm', 'show', out, '--kernel', kernel, '--initrd', initrd, '--cmdline', cmdline)
  expect(same.code).toBe(0)
  expect(same.stdout).toEndWith(
    'PASS igvm-layout: ok\nPASS igvm-kernel: ok\nPASS igvm-initrd: ok\nPASS igvm-cmdline: ok\nVERDICT: PASS: 4 passed, 0 failed, 0 not checked\n',
  )
  const other = await runJson('igvm', 'show', out, '--kernel', initrd, '--cmdline', `${cmdline} `)
  expect([other.code, checksOf(other.document, 'FAIL'), checksOf(other.document, 'NOT CHECKED')]).toEqual([
    1,
    ['igvm-kernel', 'igvm-cmdline'],
    ['igvm-initrd'],
  ])
})

test('goal: a file without committed hashes fails every comparison', async () => {
  const { code, document } = await runJson('igvm', 'show', sample, '--kernel', kernel)
  expect([code, checksOf(document, 'FAIL')]).toEqual([1, ['igvm-layout', 'igvm-kernel']])
  expect(document).toMatchObject({ kernel_hashes: null, digests: { 'qemu-kvm': { digest: null } } })
  expect((await run('igvm', 'show', sample)).stdout).toContain('qemu-kvm:        no digest: IGVM: context at')
})

test('goal: an ID block goes in only when it names the digest and the policy of the file', async () => {
  const { document } = await runJson('igvm', 'build', ...parts, '--out', out)
  const curve = { name: 'ECDSA', namedCurve: 'P-384' }
  const idKey = await crypto.subtle.generateKey(curve, true, ['sign', 'verify'])
  const blockOf = async (measurement: Uint8Array, policy: bigint) => {
    const ids = { familyId: new Uint8Array(16), imageId: new Uint8Array(16), guestSvn: 1 }
    const signed = await signIdBlock({ measurement, policy, ...ids }, { idKey })
    return ['--id-block', file('id-block', signed.idBlock), '--id-auth', file('id-auth', signed.idAuth)]
  }
  const measurement = fromHex(String(document.digest)) ?? new Uint8Array(48)
  const withBlock = join(dir, 'id.igvm')
  const argv = ['igvm', 'build', ...parts, '--out', withBlock]
  const good = await blockOf(measurement, 0x30000n)
  expect((await run(...argv, ...good)).code).toBe(0)
  const shown = await runJson('igvm', 'show', withBlock)
  expect(shown.document).toMatchObject({ id_block_measurement: document.digest, headers: { snpIdBlock: 1 } })
  await expectUsageError([...argv, ...good.slice(0, 2)], 'required option --id-auth is missing')
  await expectUsageError([...argv, ...good, '--policy', '0x20000'], 'the ID block names another policy')
  await expectUsageError([...argv, ...good, '--vcpus', '3'], 'the ID block names another launch digest')
})

test('goal: usage errors exit 2, and nothing is put in the place of what is no file', async () => {
  // Never a device of the machine: should the refusal break, root would put a file in its place.
  const [link, pipe] = [join(dir, 'link'), join(dir, 'pipe')]
  symlinkSync(kernel, link)
  expect(Bun.spawnSync(['mkfifo', pipe]).exitCode).toBe(0)
  mkdirSync(join(dir, 'directory'))
  const errors: [string[], string][] = [
    [['igvm', 'build', ...parts], "required option '--out <file>' not specified"],
    [['igvm', 'build', ...parts.slice(2), '--out', out], "required option '--firmware <file>' not specified"],
    [['igvm', 'build', ...parts, '--policy', 'debug', '--out', out], "'--policy <bits>' argument 'debug' is invalid"],
    [['igvm', 'build', ...parts, '--out', pipe], `--out ${pipe}: it exists and is not a regular file`],
    [['igvm', 'build', ...parts, '--out', link], 'it exists and is not a regular file'],
    [['igvm', 'build', ...parts, '--out', join(dir, 'directory')], 'it exists and is not a regular file'],
    [['igvm', 'build', ...parts, '--out', join(dir, 'nowhere/image.igvm')], '--out'],
    [['igvm', 'build', '--firmware', sample, ...parts.slice(2), '--out', join(dir, 'none')], 'not 1 to 16384 pages'],
    [['igvm', 'show', kernel], `${kernel}: IGVM: 6 bytes`],
    [['igvm', 'show', sample, '--kernel', join(dir, 'missing')], 'there is no such file'],
    [['igvm', 'show'], "missing required argument 'file'"],
  ]
  for (const [argv, message] of errors) await expectUsageError(argv, message)
  expect(existsSync(join(dir, 'none'))).toBe(false)
  expect([lstatSync(pipe).isFIFO(), lstatSync(link).isSymbolicLink(), readFileSync(kernel, 'utf8')]).toEqual([
    true,
    true,
    'kernel',
  ])
})

test('goal: a stranger makes the very file of an image again from its directory, without its root', async () => {
  const image = mkdtempSync(join(dir, 'image-'))
  const { manifest, igvm } = await writeLaunchImage(image)
  rmSync(join(image, 'root'))
  const again = join(dir, 'again.igvm')
  const shape = ['--vcpus', '2', '--vcpu-type', 'EPYC-v4']
  const made = await runJson('measure', 'igvm', '--image', image, ...shape, '--out', again)
  const digest = manifest.launchDigests['qemu-kvm/igvm/EPYC-v4/2']
  const sha256 = new Bun.CryptoHasher('sha256').update(readFileSync(igvm)).digest('hex')
  expect([made.code, made.document]).toMatchObject([0, { ok: true, digest, sha256, file: again, profile: 'qemu-kvm' }])
  expect(readFileSync(again).equals(readFileSync(igvm))).toBe(true)
  const file = await runJson('measure', 'igvm', again, '--profile', 'qemu-kvm')
  expect([file.code, file.document.digest]).toEqual([0, digest])
  const other = await run('measure', 'igvm', '--image', image, '--vcpus', '3', '--vcpu-type', 'EPYC-v4')
  expect([other.code, other.stdout.includes('the manifest has no launch digest for qemu-kvm/igvm/EPYC-v4/3')]).toEqual([
    1,
    true,
  ])
})

test.each(['firmware', 'kernel', 'initrd', 'cmdline'])('one altered byte in the %s of an image', async part => {
  // Goal: the output names the part, and the digest differs from the manifest's.
  const image = mkdtempSync(join(dir, 'image-'))
  await writeLaunchImage(image)
  const bytes = readFileSync(join(image, part))
  bytes[2] = (bytes[2] ?? 0) ^ 1
  writeFileSync(join(image, part), bytes)
  const shape = ['--vcpus', '2', '--vcpu-type', 'EPYC-v4']
  const { code, document } = await runJson('measure', 'igvm', '--image', image, ...shape)
  expect([code, checksOf(document, 'FAIL')]).toEqual([1, [part, 'launch-digest']])
})

test('goal: measure igvm takes a file or an image, and says what is missing', async () => {
  const image = mkdtempSync(join(dir, 'image-'))
  await writeLaunchImage(image)
  const errors: [string[], string][] = [
    [[], "missing required argument 'file'"],
    [[sample], 'required option --profile is missing'],
    [[sample, '--profile', 'qemu-kvm', '--out', out], '--out needs --image'],
    [[sample, '--image', image], 'a file and --image exclude each other'],
    [['--image', image, '--vcpu-type', 'EPYC-v4'], 'required option --vcpus is missing'],
    [['--image', image, '--vcpus', '2'], 'required option --vcpu-type is missing'],
    [['--image', image, '--profile', 'directive-order'], 'manifests have digests of profile qemu-kvm alone'],
    [
      ['--image', join(image, 'kernel'), '--vcpus', '2', '--vcpu-type', 'EPYC-v4'],
      'kernel/manifest.json: there is no such file',
    ],
  ]
  for (const [argv, message] of errors) await expectUsageError(['measure', 'igvm', ...argv], message)
})
