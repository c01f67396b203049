// Positions in KVM's structures (Linux include/uapi/linux/kvm.h, arch/x86/include/uapi/asm/kvm.h) of what a recorded
// launch is read from. Pure. test/linux/kernel-layouts.slow.test.ts compares them with the headers.

/** struct kvm_sev_snp_launch_start. */
export const START = { policy: 0, flags: 24 } as const
/** struct kvm_sev_snp_launch_finish. */
export const FINISH = { idBlockEn: 16, authKeyEn: 17, vcekDisabled: 18, hostData: 19, hostDataEnd: 51 } as const

/** struct kvm_segment. `attributes`: type, present, dpl, db, s, l, g, avl and unusable, one byte each. */
export const SEGMENT = { base: 0, limit: 8, selector: 12, attributes: 14 } as const
/** struct kvm_dtable. */
export const TABLE = { base: 0, limit: 8 } as const
/** struct kvm_sregs2. */
export const SREGS2 = {
  ...{ cs: 0, ds: 24, es: 48, fs: 72, gs: 96, ss: 120, tr: 144, ldt: 168, gdt: 192, idt: 208 },
  ...{ cr0: 224, cr3: 240, cr4: 248, efer: 264 },
} as const
/** struct kvm_regs. r8 to r15 are not measured. */
export const REGS = {
  ...{ rax: 0, rbx: 8, rcx: 16, rdx: 24, rsi: 32, rdi: 40, rsp: 48, rbp: 56 },
  ...{ rip: 128, rflags: 136 },
} as const
/** struct kvm_debugregs. */
export const DEBUGREGS = { dr6: 32, dr7: 40 } as const
/** struct kvm_xcrs: the value of the first register, XCR0. */
export const XCRS = { value: 16 } as const
/** struct kvm_msrs, and struct kvm_msr_entry in it. */
export const MSRS = { count: 0, entries: 8 } as const
export const MSR = { index: 0, value: 8, bytes: 16 } as const
