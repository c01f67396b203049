// Goal: `strongroom measure` gives the digests of hardware and other tools, and refuses what it cannot measure.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checksOf, expectUsageError, run, runJson, vectors } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-measure-'))
afterAll(() => rmSync(dir, { recursive: true }))

const inputs = join(vectors, 'launch-digest/bare-metal-milan.inputs.json')
const hardware = '7f51e17f72a04d5422cb2c00998166536019a217376f3aa45a630e59c805a599847ff250dbffcd07e1ba639771d6f05d'
const firmware = join(vectors, 'ovmf/ovmf_AmdSev_suffix.bin')
const igvm = join(vectors, 'igvm/bz-x64-vtl0-encrypted.igvm')
const igvmDigest = readFileSync(join(vectors, 'igvm/bz-x64-vtl0-encrypted.ld'), 'utf8').trim().toLowerCase()
const cpus = ['--vcpus', '1', '--vcpu-type', 'EPYC-v4', '--features', '0x1']

function file(name: string, content: string | Uint8Array): string {
  const path = join(dir, name)
  writeFileSync(path, content)
  return path
}

const empty = file('empty', '')

test('goal: the inputs of a launch on real hardware give what that hardware measured and signed', async () => {
  const { code, stdout, stderr } = await run('measure', 'ovmf', '--inputs', inputs)
  expect([code, stderr]).toEqual([0, ''])
  expect(stdout).toBe(
    `profile: qemu-kvm\ndigest:  ${hardware}\nPASS launch-digest: ${hardware}\nVERDICT: PASS: 1 passed, 0 failed, 0 not checked\n`,
  )
  const { document } = await runJson(
    ...['verify', 'report', '--report', join(vectors, 'launch-digest/bare-metal-milan.report.bin')],
    ...['--vek', join(vectors, 'launch-digest/bare-metal-milan.vcek.pem'), '--as-of', '2026-11-20'],
    ...['--any-measurement', '--any-vmpl', '--any-crl', '--any-tcb'],
  )
  expect(document).toMatchObject({ ok: true, report: { measurement: hardware } })
})

test('goal: another CPU model, count or feature is another digest, and no success beside the expected one', async () => {
  const changes = [
    ['--vcpu-type', 'EPYC-Milan'],
    ['--vcpus', '3'],
    ['--features', '0x21'],
    ['--vehicle', 'igvm'],
  ]
  const answers = await Promise.all(changes.map(change => runJson('measure', 'ovmf', '--inputs', inputs, ...change)))
  expect(answers.map(({ code, document }) => [code, document.ok, checksOf(document, 'FAIL')])).toEqual(
    changes.map(() => [1, false, ['launch-digest']]),
  )
  expect(new Set([hardware, ...answers.map(({ document }) => document.digest)]).size).toBe(changes.length + 1)
  // By its signature, EPYC-v4 is the model of the launch.
  expect((await run('measure', 'ovmf', '--inputs', inputs, '--vcpu-type', '0x800f12')).code).toBe(0)
})

type Expected = {
  vcpus: number
  vcpu_sig: string
  ovmf: string
  kernel: string | null
  cmdline: string | null
  guest_features: number
  expected: string
}

test('goal: firmware files, with kernels and without, give the digests of the reference tool', async () => {
  const rows: Expected[] = JSON.parse(readFileSync(join(vectors, 'launch-digest/expected-digests.json'), 'utf8'))
  expect(rows.length).toBeGreaterThanOrEqual(8)
  for (const row of rows) {
    const boot = row.kernel === null ? [] : ['--kernel', empty, '--initrd', empty, '--cmdline', row.cmdline ?? '']
    const { code, document } = await runJson(
      ...['measure', 'ovmf', '--firmware', join(vectors, 'ovmf', row.ovmf), '--vcpus', String(row.vcpus)],
      ...['--vcpu-type', row.vcpu_sig, '--features', String(row.guest_features), ...boot],
    )
    expect([row, code, document.digest, document.profile]).toEqual([row, 0, row.expected, 'qemu-kvm'])
    // Nothing was expected, so there is no verdict.
    expect(document).not.toHaveProperty('ok')
  }
})

test('goal: an IGVM file has the digest of its own tool, and none under a loader that refuses it', async () => {
  const directives = ['measure', 'igvm', igvm, '--profile', 'directive-order']
  const { code, document } = await runJson(...directives, '--expect', igvmDigest.toUpperCase())
  expect([code, document]).toMatchObject([0, { ok: true, digest: igvmDigest, profile: 'directive-order' }])
  expect(document.parts).toContainEqual({
    name: 'vmsa 0',
    type: 'vmsa',
    gpa: expect.stringMatching(/^0x/),
    pages: 1,
    digest: expect.stringMatching(/^[0-9a-f]{96}$/),
  })
  expect((await run(...directives)).stdout).toBe(`profile: directive-order\ndigest:  ${igvmDigest}\n`)
  expect((await run(...directives, '--expect', hardware)).code).toBe(1)
  await expectUsageError(['measure', 'igvm', igvm, '--profile', 'qemu-kvm'], 'KVM keeps none')
})

test('goal: usage errors and input that cannot be measured exit 2', async () => {
  const missing = join(dir, 'missing')
  const huge = file('huge', '')
  truncateSync(huge, 2 ** 40)
  const measured = JSON.parse(readFileSync(inputs, 'utf8'))
  const changed = (name: string, change: object) =>
    file(name, JSON.stringify({ ...measured, measurement_doc: { ...measured.measurement_doc, ...change } }))
  const ovmf = ['measure', 'ovmf', '--firmware', firmware]
  const errors: [string[], string][] = [
    [['measure', 'ovmf', ...cpus], 'required option --firmware is missing'],
    [[...ovmf, '--vcpu-type', 'EPYC-v4', '--features', '1'], 'required option --vcpus is missing'],
    [[...ovmf, '--vcpus', '1', '--features', '1'], 'required option --vcpu-type is missing'],
    [[...ovmf, '--vcpus', '1', '--vcpu-type', 'EPYC-v4'], 'required option --features is missing'],
    [[...ovmf, ...cpus, '--vcpus', '0'], "'--vcpus <count>' argument '0' is invalid"],
    [[...ovmf, ...cpus, '--vcpu-type', 'Xeon'], "'--vcpu-type <model>' argument 'Xeon' is invalid"],
    [[...ovmf, ...cpus, '--features', '-1'], "'--features <bits>' argument '-1' is invalid"],
    [[...ovmf, ...cpus, '--features', '0x10000000000000000'], 'is invalid'],
    [[...ovmf, ...cpus, '--features', '0x2'], 'SNP is not active'],
    [[...ovmf, ...cpus, '--expect', 'abcd'], 'It must be 48 bytes in hexadecimal'],
    [[...ovmf, ...cpus, '--cmdline', 'x'], '--cmdline needs --kernel'],
    [[...ovmf, ...cpus, '--initrd', empty], '--initrd needs --kernel'],
    [[...ovmf, ...cpus, '--kernel', missing], `--kernel ${missing}: there is no such file`],
    [['measure', 'ovmf', '--firmware', empty, ...cpus], 'firmware: 0 bytes'],
    [['measure', 'ovmf', '--firmware', igvm, ...cpus], 'not 1 to 16384 pages'],
    [['measure', 'ovmf', '--firmware', file('zeros', new Uint8Array(4096)), ...cpus], 'OVMF: no GUIDed table'],
    [['measure', 'ovmf', '--firmware', huge, ...cpus], `--firmware ${huge}: 1099511627776 bytes`],
    [
      ['measure', 'ovmf', '--firmware', join(vectors, 'ovmf/ovmf_OvmfX64_suffix.bin'), '--kernel', empty, ...cpus],
      'firmware that checks no kernel hashes',
    ],
    [['measure', 'ovmf', '--inputs', inputs, '--firmware', firmware], '--firmware and --inputs exclude each other'],
    [['measure', 'ovmf', '--inputs', firmware], 'not UTF-8'],
    [['measure', 'ovmf', '--inputs', file('list.json', '[]')], 'list.json: /'],
    [
      [
        'measure',
        'ovmf',
        '--inputs',
        file('twice.json', JSON.stringify(measured).replace('"kernel_hash"', '"kernel_hash":null,"kernel_hash"')),
      ],
      'the file has the field "kernel_hash" twice',
    ],
    [['measure', 'ovmf', '--inputs', changed('hash.json', { ovmf_hash: 'ab' })], '/measurement_doc/ovmf_hash'],
    [
      ['measure', 'ovmf', '--inputs', changed('part.json', { ovmf_sections: [{ gpa: 0, size: 6000, type: 1 }] })],
      '/measurement_doc/ovmf_sections/0/size',
    ],
    [
      ['measure', 'ovmf', '--inputs', changed('type.json', { ovmf_sections: [{ gpa: 0, size: 4096, type: 9 }] })],
      'unknown type 9',
    ],
    [['measure', 'igvm', igvm], 'required option --profile is missing'],
    [['measure', 'igvm', igvm, '--profile', 'ec2'], 'Allowed choices are directive-order, qemu-kvm'],
    [['measure', 'igvm', missing, '--profile', 'qemu-kvm'], `${missing}: there is no such file`],
    [['measure', 'igvm', firmware, '--profile', 'qemu-kvm'], `${firmware}: IGVM: magic`],
    [['measure', 'igvm', huge, '--profile', 'qemu-kvm'], `${huge}: 1099511627776 bytes`],
  ]
  for (const [argv, message] of errors) await expectUsageError(argv, message)
})
