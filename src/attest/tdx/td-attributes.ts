// Names of TD attributes. Pure. Unnamed bits are reported, never dropped.

/** ATTRIBUTES of a TD, Intel TDX Module 1.5 ABI specification, section 3.4.1. Bits 7:0 make a TD untrusted. */
export const TD_BITS = {
  debug: 0,
  hgsPlusProfiling: 4,
  performanceProfiling: 5,
  pmtProfiling: 6,
  icssd: 16,
  lass: 27,
  septVeDisable: 28,
  migratable: 29,
  pks: 30,
  keyLocker: 31,
  tpa: 62,
  perfmon: 63,
} as const satisfies Record<string, number>

export type TdBit = keyof typeof TD_BITS
