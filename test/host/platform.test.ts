import { afterAll, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { isRoot } from '../../scripts/rigs/netns.ts'
import { detectPlatform, hostCapacity, hostProduct, parseSnpLeaf, snpFacts } from '../../src/host/platform.ts'

const dir = mkdtempSync(join(tmpdir(), 'platform-test-'))
afterAll(() => rmSync(dir, { recursive: true }))

let count = 0
function hostWith(files: Record<string, string>): { root: string } {
  count += 1
  const root = join(dir, String(count))
  mkdirSync(root)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  return { root }
}

const cpuinfo = (flags: string) =>
  `processor\t: 0\nflags\t\t: fpu ${flags} sse\n\nprocessor\t: 1\nflags\t\t: fpu ${flags} sse\n`
const amd = { 'proc/cpuinfo': cpuinfo('svm') }
const intel = { 'proc/cpuinfo': cpuinfo('vmx') }
const none = { 'proc/cpuinfo': cpuinfo('svmx hypervisor') }
const kvm = { 'dev/kvm': '' }
const sev = { 'dev/sev': '' }
const snp = (value: string) => ({ 'sys/module/kvm_amd/parameters/sev_snp': value })

test('goal: the platform over every combination of what a host shows', () => {
  const table: [Record<string, string>, string][] = [
    [{}, 'tcg'],
    [amd, 'tcg'],
    [kvm, 'tcg'],
    [{ ...kvm, ...none }, 'tcg'],
    [{ ...kvm, ...amd }, 'kvm'],
    [{ ...kvm, ...intel }, 'kvm'],
    [{ ...kvm, ...amd, ...sev }, 'kvm'],
    [{ ...kvm, ...amd, ...snp('Y\n') }, 'kvm'],
    [{ ...kvm, ...amd, ...sev, ...snp('N\n') }, 'kvm'],
    [{ ...kvm, ...amd, ...sev, ...snp('Y\n') }, 'snp'],
    [{ ...kvm, ...amd, ...sev, ...snp('1\n') }, 'snp'],
  ]
  for (const [files, platform] of table) {
    expect({ files, platform: detectPlatform(hostWith(files)).platform as string }).toEqual({ files, platform })
  }
})

test('goal: the product from family and model of /proc/cpuinfo; unknown ones and other makers have none', () => {
  const processor = (vendor: string, family: number, model: number) => ({
    'proc/cpuinfo': `processor\t: 0\nvendor_id\t: ${vendor}\ncpu family\t: ${family}\nmodel\t\t: ${model}\nmodel name\t: EPYC\nstepping\t: 1\n`,
  })
  const table: [Record<string, string>, string | null][] = [
    [processor('AuthenticAMD', 25, 1), 'milan'],
    [processor('AuthenticAMD', 25, 17), 'genoa'],
    [processor('AuthenticAMD', 25, 160), 'genoa'],
    [processor('AuthenticAMD', 26, 2), 'turin'],
    [processor('AuthenticAMD', 23, 49), null],
    [processor('GenuineIntel', 25, 1), null],
    [amd, null],
    [{}, null],
  ]
  for (const [files, product] of table) {
    expect({ files, product: hostProduct(hostWith(files)) as string | null }).toEqual({ files, product })
  }
})

test('goal: the reasons say all that was looked at (golden)', () => {
  expect(detectPlatform(hostWith({ ...kvm, ...amd, ...sev, ...snp('N\n') })).reasons).toEqual([
    '/dev/sev: present',
    'kvm_amd sev_snp: N',
    '/dev/kvm: present',
    'CPU virtualization flag: svm',
  ])
  expect(detectPlatform(hostWith({})).reasons).toEqual([
    '/dev/sev: absent',
    'kvm_amd sev_snp: absent',
    '/dev/kvm: absent',
    'CPU virtualization flag: none',
  ])
})

test('goal: capacity is read, here too, and is a Fault where /proc does not say', () => {
  const host = hostWith({ ...amd, 'proc/meminfo': 'MemTotal:        2097663 kB\nMemFree: 1 kB\n' })
  expect(hostCapacity(host)).toEqual({ memoryMiB: 2048, cpus: 2 })
  expect(() => hostCapacity(hostWith({}))).toThrow('no MemTotal')
  expect(hostCapacity().memoryMiB).toBeGreaterThan(100)
  expect(hostCapacity().cpus).toBe(navigator.hardwareConcurrency)
})

/** CPUID 8000_001F by registers. */
function leaf(eax: number, ebx: number, ecx: number, edx: number): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(16))
  for (const [index, value] of [eax, ebx, ecx, edx].entries()) bytes.setUint32(index * 4, value, true)
  return new Uint8Array(bytes.buffer)
}

test('goal: SNP facts of CPUID 8000_001F; none without the SNP bit or with nothing reserved', () => {
  // EBX: C-bit 51, 5 bits less, 4 VMPLs; 509 ASIDs of which 1 to 98 are not for plain SEV.
  expect(parseSnpLeaf(leaf(0x1f, 51 | (5 << 6) | (4 << 12), 509, 99))).toEqual({
    cbitpos: 51,
    reducedPhysBits: 5,
    asidCount: 98,
  })
  expect(parseSnpLeaf(leaf(0x1f, 47, 15, 1)).asidCount).toBe(0)
  expect(parseSnpLeaf(leaf(0x1f, 47, 15, 100)).asidCount).toBe(15)
  expect(() => parseSnpLeaf(leaf(0x0f, 51, 509, 99))).toThrow('no SEV-SNP')
  expect(() => parseSnpLeaf(new Uint8Array(15))).toThrow('15 bytes')
})

test('goal: without a cpuid device the Fault says what to load; with one the leaf is really read', () => {
  expect(() => snpFacts(hostWith({}))).toThrow('load the cpuid module')
  if (!isRoot || !existsSync('/dev/cpu/0/cpuid')) return
  // Any CPU gives 16 bytes: either facts, or the refusal of a CPU without SNP.
  let outcome = 'facts'
  try {
    snpFacts()
  } catch (error) {
    outcome = (error as Error).message
  }
  expect(outcome).toMatch(/^facts$|no SEV-SNP/)
})
