// Names of the bits of a report's guest policy, platform info and key info. Pure. Unnamed bits are reported, never
// dropped.

/** Guest policy, AMD 56860 rev 1.58, table 9. Bits 15:0 are the minimum ABI version; 63:26 must be zero. */
export const POLICY_BITS = {
  smt: 16,
  reservedOne: 17,
  migrate: 18,
  debug: 19,
  singleSocket: 20,
  cxl: 21,
  aes256Xts: 22,
  raplOff: 23,
  ciphertextHiding: 24,
  pageSwapOff: 25,
} as const satisfies Record<string, number>

/** PLATFORM_INFO, AMD 56860 rev 1.58, table 24. */
export const PLATFORM_BITS = {
  smt: 0,
  tsme: 1,
  ecc: 2,
  raplOff: 3,
  ciphertextHiding: 4,
  aliasCheck: 5,
  iommuWriteSafe: 6,
  tio: 7,
} as const satisfies Record<string, number>

/** Flags of key_info, AMD 56860 rev 1.58, table 23 (offset 048h). Bits 4:2 are the signing key: see signerOfKeyInfo. */
export const KEY_BITS = {
  authorKeyEnabled: 0,
  maskChipKey: 1,
} as const satisfies Record<string, number>

/** `none`: the firmware was configured not to sign. */
export type Signer = 'vcek' | 'vlek' | 'none'

export type PolicyBit = keyof typeof POLICY_BITS
type PlatformBit = keyof typeof PLATFORM_BITS
type KeyBit = keyof typeof KEY_BITS

/** The bits that are set. `names`: in the order of the bits. `unknown`: numbers of the bits without a name. */
export type NamedBits<Name extends string> = { readonly names: readonly Name[]; readonly unknown: readonly number[] }

/** Returns the bits of a guest policy, and the minimum ABI version that it requires. */
export function policyNames(policy: bigint): NamedBits<PolicyBit> & { readonly abi: { major: number; minor: number } } {
  const abi = { major: Number((policy >> 8n) & 0xffn), minor: Number(policy & 0xffn) }
  return { ...namedBits(POLICY_BITS, policy & ~0xffffn), abi }
}

export function platformNames(platformInfo: bigint): NamedBits<PlatformBit> {
  return namedBits(PLATFORM_BITS, platformInfo)
}

/** Returns the flags and the signing key; null if the specification reserves the key's number. */
export function keyInfoNames(keyInfo: number): NamedBits<KeyBit> & { readonly signer: Signer | null } {
  return { ...namedBits(KEY_BITS, BigInt(keyInfo) & ~0x1cn), signer: signerOfKeyInfo(keyInfo) }
}

/** Returns SIGNING_KEY, bits 4:2 of key_info: 0 VCEK, 1 VLEK, 7 none; null for reserved values. */
export function signerOfKeyInfo(keyInfo: number): Signer | null {
  const signers: Readonly<Record<number, Signer>> = { 0: 'vcek', 1: 'vlek', 7: 'none' }
  return signers[(keyInfo >>> 2) & 7] ?? null
}

export function hasBit(value: bigint, bit: number): boolean {
  return ((value >> BigInt(bit)) & 1n) === 1n
}

export function namedBits<Name extends string>(table: Readonly<Record<Name, number>>, value: bigint): NamedBits<Name> {
  const nameOf = new Map<number, Name>()
  for (const name of Object.keys(table) as Name[]) nameOf.set(table[name], name)
  const names: Name[] = []
  const unknown: number[] = []
  for (let bit = 0; bit < 64; bit += 1) {
    if (!hasBit(value, bit)) continue
    const name = nameOf.get(bit)
    if (name === undefined) unknown.push(bit)
    else names.push(name)
  }
  return { names, unknown }
}
