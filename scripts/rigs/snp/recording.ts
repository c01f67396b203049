// A recorded SNP launch (recorder.c): its records, the launch digest that AMD's firmware would compute from them, and
// the processors' state. Pure. Independent of src/attest, with which tests compare it.

import { createHash } from 'node:crypto'

export type LaunchRecord = {
  readonly name: string
  readonly numbers: readonly bigint[]
  readonly bytes: Buffer
}

/** Reads the records among QEMU's other messages. */
export function readRecording(log: string): LaunchRecord[] {
  const lines = log.split('\n').filter(line => line.startsWith('snp '))
  return lines.map(line => {
    const [, name = '', ...fields] = line.split(' ')
    const hex = fields.pop() ?? ''
    const bytes = Buffer.from(hex, 'hex')
    if (2 * bytes.length !== hex.length) throw new Error(`a record of ${name} is cut short`)
    return { name, numbers: fields.map(text => BigInt(`0x${text}`)), bytes }
  })
}

/** Returns the only record of this name. */
export function only(records: readonly LaunchRecord[], name: string): LaunchRecord {
  const found = records.filter(record => record.name === name)
  if (found.length !== 1 || found[0] === undefined) throw new Error(`${found.length} records of ${name}, not one`)
  return found[0]
}

/** struct kvm_sev_snp_launch_start (Linux arch/x86/include/uapi/asm/kvm.h). */
export function launchStart(records: readonly LaunchRecord[]) {
  const { bytes } = only(records, 'start')
  return { policy: bytes.readBigUInt64LE(0), flags: bytes.readUInt16LE(24) }
}

/** struct kvm_sev_snp_launch_finish, and the blocks that it points to. */
export function launchFinish(records: readonly LaunchRecord[]) {
  const { bytes } = only(records, 'finish')
  return {
    hasIdBlock: bytes[16] === 1,
    hasAuthorKey: bytes[17] === 1,
    isVcekDisabled: bytes[18] === 1,
    hostData: bytes.subarray(19, 51).toString('base64'),
    idBlock: only(records, 'id-block').bytes.toString('base64'),
    idAuth: only(records, 'id-auth').bytes.toString('base64'),
  }
}

const sha384 = (bytes: Uint8Array) => createHash('sha384').update(bytes).digest()
const pageBytes = 4096
/** PAGE_TYPE (AMD 56860 rev 1.58, table 69): only pages of types 1 and 2 have their contents measured. */
const TYPE = { normal: 1, vmsa: 2 } as const
/** KVM measures every VMSA at this address. */
const vmsaGpa = 0xffff_ffff_f000n

/** Computes the launch digest of the recorded pages and processors (AMD 56860 rev 1.58, 8.17.2). */
export function recordedDigest(records: readonly LaunchRecord[]): string {
  let digest: Buffer = Buffer.alloc(48)
  const add = (type: number, gpa: bigint, contents: Buffer) => {
    const page = Buffer.alloc(0x70)
    digest.copy(page, 0)
    contents.copy(page, 0x30)
    page.writeUInt16LE(0x70, 0x60)
    page.writeUInt8(type, 0x62)
    page.writeBigUInt64LE(gpa, 0x68)
    digest = sha384(page)
  }
  for (const { name, numbers, bytes } of records) {
    const [gfn = 0n, length = 0n, type = 0n] = numbers
    if (name !== 'update') continue
    if (bytes.length !== Number(length)) throw new Error(`an update of ${length} bytes has ${bytes.length}`)
    for (let at = 0; at < Number(length); at += pageBytes) {
      const isMeasured = Number(type) === TYPE.normal
      const contents = isMeasured ? sha384(bytes.subarray(at, at + pageBytes)) : Buffer.alloc(48)
      add(Number(type), gfn * 4096n + BigInt(at), contents)
    }
  }
  for (const vmsa of recordedVmsas(records)) add(TYPE.vmsa, vmsaGpa, sha384(vmsa))
  return digest.toString('hex')
}

/** Builds the page of each processor from the state that it had when the launch finished, as KVM does. */
export function recordedVmsas(records: readonly LaunchRecord[]): Buffer[] {
  const end = records.findIndex(({ name }) => name === 'finish')
  const states = new Map<bigint, Map<string, Buffer>>()
  for (const { name, numbers, bytes } of records.slice(0, end)) {
    const [vcpu] = numbers
    if (!STATE.includes(name) || vcpu === undefined) continue
    const state = states.get(vcpu) ?? new Map<string, Buffer>()
    if (name === 'msrs') for (const [index, value] of msrsOf(bytes)) state.set(`msr ${index.toString(16)}`, value)
    else state.set(name, bytes)
    states.set(vcpu, state)
  }
  const vcpus = [...states.keys()].toSorted((a, b) => Number(a - b))
  return vcpus.map(vcpu => vmsaOf(states.get(vcpu) as Map<string, Buffer>))
}

const STATE = ['regs', 'sregs2', 'debugregs', 'xcrs', 'xsave', 'msrs']

function msrsOf(bytes: Buffer): [number, Buffer][] {
  return Array.from({ length: bytes.readUInt32LE(0) }, (_, at) => {
    return [bytes.readUInt32LE(8 + 16 * at), bytes.subarray(16 + 16 * at, 24 + 16 * at)]
  })
}

/** [offset in struct kvm_sregs2, offset in the VMSA]. */
const SEGMENTS = [
  ...[
    [0, 0x10],
    [24, 0x30],
    [48, 0x00],
    [72, 0x40],
    [96, 0x50],
    [120, 0x20],
    [144, 0x90],
    [168, 0x70],
  ],
] as const
const TABLES = [
  [192, 0x60],
  [208, 0x80],
] as const
/** In the order of struct kvm_regs: rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, then r8 to r15. */
const REGISTERS = [0x1f8, 0x318, 0x308, 0x310, 0x330, 0x338, 0x1d8, 0x328] as const

/** Linux arch/x86/kvm/svm/sev.c, sev_es_sync_vmsa, and svm.c, svm_set_segment. Layout: AMD APM volume 2, table B-4. */
function vmsaOf(state: ReadonlyMap<string, Buffer>): Buffer {
  const page = Buffer.alloc(pageBytes)
  const of = (name: string): Buffer => {
    const bytes = state.get(name)
    if (bytes === undefined) throw new Error(`no ${name} of a processor`)
    return bytes
  }
  const [sregs, regs] = [of('sregs2'), of('regs')]
  for (const [from, to] of SEGMENTS as unknown as readonly [number, number][]) {
    const [type = 0, present = 0, dpl = 0, db = 0, s = 0, l = 0, g = 0, avl = 0, unusable = 0] = sregs.subarray(
      from + 14,
    )
    const isPresent = present === 1 && unusable === 0 ? 1 : 0
    const attributes = type | (s << 4) | (dpl << 5) | (isPresent << 7) | (avl << 8) | (l << 9) | (db << 10) | (g << 11)
    page.writeUInt16LE(sregs.readUInt16LE(from + 12), to)
    page.writeUInt16LE(attributes, to + 2)
    page.writeUInt32LE(sregs.readUInt32LE(from + 8), to + 4)
    page.writeBigUInt64LE(sregs.readBigUInt64LE(from), to + 8)
  }
  for (const [from, to] of TABLES) {
    page.writeUInt32LE(sregs.readUInt16LE(from + 8), to + 4)
    page.writeBigUInt64LE(sregs.readBigUInt64LE(from), to + 8)
  }
  const word = (at: number, value: bigint) => page.writeBigUInt64LE(value, at)
  // KVM sets EFER.SVME and CR4.MCE.
  word(0x0d0, sregs.readBigUInt64LE(264) | 0x1000n)
  word(0x148, sregs.readBigUInt64LE(248) | 0x40n)
  word(0x150, sregs.readBigUInt64LE(240))
  // KVM clears CD and NW (svm_set_cr0, KVM_X86_QUIRK_CD_NW_CLEARED).
  word(0x158, sregs.readBigUInt64LE(224) & ~0x6000_0000n)
  const debug = of('debugregs')
  word(0x160, debug.readBigUInt64LE(40))
  word(0x168, debug.readBigUInt64LE(32))
  word(0x170, regs.readBigUInt64LE(136) | 2n)
  word(0x178, regs.readBigUInt64LE(128))
  for (const [at, to] of REGISTERS.entries()) word(to, regs.readBigUInt64LE(8 * at))
  word(0x268, of('msr 277').readBigUInt64LE(0))
  // SEV_FEATURES: SNP alone.
  word(0x3b0, 1n)
  word(0x3e8, of('xcrs').readBigUInt64LE(16))
  const fpu = of('xsave')
  page.writeUInt32LE(fpu.readUInt32LE(24), 0x408)
  page.writeUInt16LE(fpu.readUInt16LE(2), 0x40e)
  page.writeUInt16LE(fpu.readUInt16LE(0), 0x410)
  return page
}
