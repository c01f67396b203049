// A recorded SNP launch (recorder.c): its records, the launch digest that AMD's firmware would compute from them, and
// the processors' state. Pure. Independent of src/attest, with which tests compare it.

import { createHash } from 'node:crypto'
import { DEBUGREGS, FINISH, MSR, MSRS, REGS, SEGMENT, SREGS2, START, TABLE, XCRS } from './kvm-layout.ts'

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
  return { policy: bytes.readBigUInt64LE(START.policy), flags: bytes.readUInt16LE(START.flags) }
}

/** struct kvm_sev_snp_launch_finish, and the blocks that it points to. */
export function launchFinish(records: readonly LaunchRecord[]) {
  const { bytes } = only(records, 'finish')
  return {
    hasIdBlock: bytes[FINISH.idBlockEn] === 1,
    hasAuthorKey: bytes[FINISH.authKeyEn] === 1,
    isVcekDisabled: bytes[FINISH.vcekDisabled] === 1,
    hostData: bytes.subarray(FINISH.hostData, FINISH.hostDataEnd).toString('base64'),
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
  return Array.from({ length: bytes.readUInt32LE(MSRS.count) }, (_, index) => {
    const at = MSRS.entries + MSR.bytes * index
    return [bytes.readUInt32LE(at + MSR.index), bytes.subarray(at + MSR.value, at + MSR.bytes)]
  })
}

/** Offsets in the VMSA. */
const SEGMENTS = { cs: 0x10, ds: 0x30, es: 0x00, fs: 0x40, gs: 0x50, ss: 0x20, tr: 0x90, ldt: 0x70 } as const
const TABLES = { gdt: 0x60, idt: 0x80 } as const
const REGISTERS = {
  ...{ rax: 0x1f8, rbx: 0x318, rcx: 0x308, rdx: 0x310, rsi: 0x330, rdi: 0x338, rsp: 0x1d8, rbp: 0x328 },
  ...{ rip: 0x178 },
} as const

function entriesOf<Key extends string>(offsets: Readonly<Record<Key, number>>): [Key, number][] {
  return Object.entries(offsets) as [Key, number][]
}

/** Linux arch/x86/kvm/svm/sev.c, sev_es_sync_vmsa, and svm.c, svm_set_segment. Layout: AMD APM volume 2, table B-4. */
function vmsaOf(state: ReadonlyMap<string, Buffer>): Buffer {
  const page = Buffer.alloc(pageBytes)
  const of = (name: string): Buffer => {
    const bytes = state.get(name)
    if (bytes === undefined) throw new Error(`no ${name} of a processor`)
    return bytes
  }
  const [sregs, regs] = [of('sregs2'), of('regs')]
  for (const [name, to] of entriesOf(SEGMENTS)) {
    const from = SREGS2[name]
    const [type = 0, present = 0, dpl = 0, db = 0, s = 0, l = 0, g = 0, avl = 0, unusable = 0] = sregs.subarray(
      from + SEGMENT.attributes,
    )
    const isPresent = present === 1 && unusable === 0 ? 1 : 0
    const attributes = type | (s << 4) | (dpl << 5) | (isPresent << 7) | (avl << 8) | (l << 9) | (db << 10) | (g << 11)
    page.writeUInt16LE(sregs.readUInt16LE(from + SEGMENT.selector), to)
    page.writeUInt16LE(attributes, to + 2)
    page.writeUInt32LE(sregs.readUInt32LE(from + SEGMENT.limit), to + 4)
    page.writeBigUInt64LE(sregs.readBigUInt64LE(from + SEGMENT.base), to + 8)
  }
  for (const [name, to] of entriesOf(TABLES)) {
    page.writeUInt32LE(sregs.readUInt16LE(SREGS2[name] + TABLE.limit), to + 4)
    page.writeBigUInt64LE(sregs.readBigUInt64LE(SREGS2[name] + TABLE.base), to + 8)
  }
  const word = (at: number, value: bigint) => page.writeBigUInt64LE(value, at)
  // KVM sets EFER.SVME and CR4.MCE.
  word(0x0d0, sregs.readBigUInt64LE(SREGS2.efer) | 0x1000n)
  word(0x148, sregs.readBigUInt64LE(SREGS2.cr4) | 0x40n)
  word(0x150, sregs.readBigUInt64LE(SREGS2.cr3))
  // KVM clears CD and NW (svm_set_cr0, KVM_X86_QUIRK_CD_NW_CLEARED).
  word(0x158, sregs.readBigUInt64LE(SREGS2.cr0) & ~0x6000_0000n)
  const debug = of('debugregs')
  word(0x160, debug.readBigUInt64LE(DEBUGREGS.dr7))
  word(0x168, debug.readBigUInt64LE(DEBUGREGS.dr6))
  word(0x170, regs.readBigUInt64LE(REGS.rflags) | 2n)
  for (const [name, to] of entriesOf(REGISTERS)) word(to, regs.readBigUInt64LE(REGS[name]))
  word(0x268, of('msr 277').readBigUInt64LE(0))
  // SEV_FEATURES: SNP alone.
  word(0x3b0, 1n)
  word(0x3e8, of('xcrs').readBigUInt64LE(XCRS.value))
  const fpu = of('xsave')
  page.writeUInt32LE(fpu.readUInt32LE(24), 0x408)
  page.writeUInt16LE(fpu.readUInt16LE(2), 0x40e)
  page.writeUInt16LE(fpu.readUInt16LE(0), 0x410)
  return page
}
