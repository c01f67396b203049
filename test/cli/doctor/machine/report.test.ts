// Goal: the report for developers has what a launch depends on, and no text of the configuration, wherever else it
// occurs.

import { expect, test } from 'bun:test'
import { Kind, type TSchema } from '@sinclair/typebox'
import { pass } from '../../../../src/cli/doctor/check.ts'
import {
  bootParameters,
  hardwareReport,
  type MachineReport,
  parameterText,
  sevLines,
} from '../../../../src/cli/doctor/machine/report.ts'
import { defaultConfig } from '../../../../src/config/load.ts'
import { Config } from '../../../../src/config/schema.ts'

const machine: MachineReport = {
  version: '0.1.0',
  kernel: '6.12.0-amd64',
  distribution: 'Debian GNU/Linux 13 (trixie)',
  bootParameters: [],
  board: { bios_version: '2.4a' },
  processor: { 'model name': 'AMD EPYC 9354' },
  cpuid: { '8000001f': '0101fd3f 00004173 000003ee 00000001' },
  moduleParameters: { 'kvm_amd.sev_snp': 'Y' },
  devices: { '/dev/sev': 'mode 600, uid 0, gid 0' },
  firmware: { apiMajor: 1, apiMinor: 55, currentTcb: 0xdb18_0000_0000_0004n },
  packages: ['qemu-system-x86 1:10.0.2'],
  kernelLog: ['ccp 0000:01:00.5: SEV-SNP API:1.55 build:21'],
}
const defaults = defaultConfig()
const madeAt = '2026-11-30T12:00:00.000Z'

/** Returns a value of this schema with a text of its own at each place that takes one, and the texts. */
function planted(root: TSchema): { readonly value: unknown; readonly texts: readonly string[] } {
  const texts: string[] = []
  const fill = (schema: TSchema): unknown => {
    const kind = schema[Kind]
    if (kind === 'Object') {
      const fields = Object.entries<TSchema>(schema.properties)
      return Object.fromEntries(fields.map(([name, field]) => [name, fill(field)]))
    }
    if (kind === 'Array') return [fill(schema.items), fill(schema.items)]
    if (kind === 'Boolean' || kind === 'Integer' || kind === 'Number' || kind === 'Literal') return schema.default
    // Choices get one, too: what stands in their place must not be printed unless it is one of them.
    texts.push(`hidden${texts.length}-${Bun.hash(String(texts.length)).toString(36)}`)
    return texts.at(-1)
  }
  return { value: fill(root), texts }
}

// Goal: whatever a field holds, it is not in the file, nor where a check or the kernel's log repeats it.
test('no text of any field of the configuration', () => {
  const { value, texts } = planted(Config)
  expect(texts.length).toBeGreaterThan(100)
  const checks = ['platform', 'firmware', 'qemu', 'image', 'daemon', 'host names'].map(name =>
    pass(name, texts.map(text => `x${text}/y`).join(' ')),
  )
  const kernelLog = texts.map(text => `SEV: ${text}`)
  const report = hardwareReport({ ...machine, kernelLog }, { checks, config: value as Config, madeAt, defaults })
  expect(texts.filter(text => report.includes(text))).toEqual([])
  expect(report).not.toContain('hidden')
  const { config } = JSON.parse(report)
  expect(config.vm.memory_mib).toBe(defaultConfig().vm.memory_mib)
  expect([config.domain, config.tls.names, config.vm.qemu]).toEqual(['set', '2 entries', 'set'])
})

// Goal: a part of an address or a path, which a check may print alone, is left out as well.
test('parts of texts', () => {
  const config = {
    ...defaults,
    vm: { ...defaults.vm, qemu: '/opt/quillvendor/qemu' },
    fleet: { ...defaults.fleet, database: 'postgres://role:tr0ub4dor@db.quillhost.example/fleet' },
  }
  const checks = [pass('qemu', 'no file in quillvendor'), pass('firmware', 'db.quillhost.example with tr0ub4dor')]
  const report = hardwareReport(machine, { checks, config, madeAt, defaults })
  expect(report).not.toMatch(/quill|tr0ub4dor/)
  expect(report).toContain('no file in (configured)')
})

// Goal: what a developer needs stays readable: numbers, choices, defaults, the facts of the machine.
test('facts', () => {
  const checks = [pass('tcb', 'reported snp 27'), pass('delegation', 'agents.example'), pass('daemon', 'pid 7')]
  const report = JSON.parse(hardwareReport(machine, { checks, config: defaultConfig(), madeAt, defaults }))
  expect(report.checks.map(({ name }: { name: string }) => name)).toEqual(['tcb'])
  expect(report.machine).toEqual({
    ...machine,
    firmware: { ...Object(machine.firmware), currentTcb: '0xdb18000000000004' },
  })
  expect([report.config.platform, report.config.vm.snp_boot, report.config.vm.qemu]).toEqual([
    defaultConfig().platform,
    defaultConfig().vm.snp_boot,
    'the default',
  ])
})

// Goal: a talkative host makes no large file.
test('the file is bounded', () => {
  const kernelLog = Array.from({ length: 100_000 }, () => 'SEV '.repeat(1_000))
  const checks = Array.from({ length: 1_000 }, () => pass('canary', 'x'.repeat(100_000)))
  expect(
    hardwareReport({ ...machine, kernelLog }, { checks, config: defaultConfig(), madeAt, defaults }).length,
  ).toBeLessThan(1 << 20)
})

// Goal: of the kernel's log only its own lines about SEV are taken, without paths; others have words of anyone.
test('the log and the command line of the kernel', () => {
  const log = [
    'Command line: BOOT_IMAGE=/vmlinuz kvm_amd.sev=1 password=hunter2',
    'Kernel command line: mem_encrypt=on password=hunter2 SEV',
    'SEV-SNP: RMP table physical range [0x1-0x2]',
    'ccp 0000:22:00.1: sev enabled',
    '[    1.234567] AMD Memory Encryption Features active: SEV SEV-ES SEV-SNP',
    '[   12.000000] kvm_amd: SEV-SNP enabled (ASIDs 1 - 99)',
    'usb 1-1: new device',
    'systemd: Set hostname to <severin>.',
    'audit: type=1400 apparmor="DENIED" name="/srv/ann/SEV plan" comm="ccp"',
    '[    9.000000] systemd[1]: Starting SEV of /srv/customer-x...',
    'ccpd[712]: SNP report of bob',
    'ccp[713]: SNP report of bob',
  ]
  const path = 'ccp 0000:22:00.1: SEV: failed to open /srv/customer-x/init_ex for read, error -2'
  expect(sevLines([...log, path].join('\n'))).toEqual([
    ...log.slice(2, 6),
    'ccp 0000:22:00.1: SEV: failed to open (path) for read, error -2',
  ])
  expect(['/srv/customer-x/init_ex', 'Y', '99', null].map(parameterText)).toEqual(['set', 'Y', '99', null])
  expect(
    bootParameters('BOOT_IMAGE=/v root=UUID=1 mem_encrypt=on kvm_amd.sev=1 iommu=pt token=abc sev=x=y ro\n'),
  ).toEqual(['mem_encrypt=on', 'kvm_amd.sev=1', 'iommu=pt'])
})
