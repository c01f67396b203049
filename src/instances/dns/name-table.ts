// Names, addresses and SSH host key fingerprints in memory shared by two threads: one writes committed data, the other
// answers from it. Effects: only on that memory.
//
// The next lookup sees a write, however busy the reader is, because nothing is sent or queued. An open-addressed table
// behind a sequence lock: the sequence is odd during a write, and a reader retries if the sequence changed.

import { assert, present } from '../../base/assert.ts'
import { type Addresses, v4Bytes, v6Bytes } from './address.plan.ts'

export type NameTableMemory = { readonly header: SharedArrayBuffer; readonly slots: SharedArrayBuffer }

/** `{label}` or `{name}.{slug}`, lowercase. */
const keyBytesMax = 63 + 1 + 63
/** Layout of a slot: the key's length (0 if free), flags for the values, the values, the key. */
const SLOT = { length: 0, has: 4, v4: 8, v6: 12, fingerprint: 28, key: 60, bytes: 188 } as const
/** Bits of `has`. */
const HAS = { v4: 1, v6: 2, fingerprint: 4 } as const
/** Sizes of the values. The fingerprint is a SHA-256. */
const VALUE_BYTES = { v4: 4, v6: 16, fingerprint: 32 } as const
type Value = keyof typeof HAS
const HEADER = { sequence: 0, count: 4, partial: 8, bytes: 12 } as const
/** Limit on retries while the other thread writes; a write takes microseconds. */
const attemptsMax = 1_000
/** No share: the load factor of the table. */
const loadMax = 0.5

/** Allocates zeroed memory for `namesMax` names. */
export function nameTableMemory(namesMax: number): NameTableMemory {
  const slotCount = 2 ** Math.ceil(Math.log2(Math.max(namesMax, 8) / loadMax))
  return { header: new SharedArrayBuffer(HEADER.bytes), slots: new SharedArrayBuffer(slotCount * SLOT.bytes) }
}

class Slots {
  readonly bytes: Uint8Array
  readonly words: Uint32Array
  readonly mask: number

  constructor({ slots }: NameTableMemory) {
    this.bytes = new Uint8Array(slots)
    this.words = new Uint32Array(slots)
    this.mask = slots.byteLength / SLOT.bytes - 1
  }

  length(slot: number): number {
    return this.words[(slot * SLOT.bytes + SLOT.length) >> 2] ?? 0
  }

  value(slot: number, value: Value): Uint8Array | null {
    const start = slot * SLOT.bytes
    if (((this.words[(start + SLOT.has) >> 2] ?? 0) & HAS[value]) === 0) return null
    return this.bytes.slice(start + SLOT[value], start + SLOT[value] + VALUE_BYTES[value])
  }

  setValue(slot: number, value: Value, bytes: Uint8Array | null): void {
    const start = slot * SLOT.bytes
    const has = this.words[(start + SLOT.has) >> 2] ?? 0
    this.words[(start + SLOT.has) >> 2] = bytes === null ? has & ~HAS[value] : has | HAS[value]
    if (bytes !== null) this.bytes.set(bytes, start + SLOT[value])
  }

  holds(slot: number, key: Uint8Array): boolean {
    if (this.length(slot) !== key.length) return false
    const start = slot * SLOT.bytes + SLOT.key
    for (let i = 0; i < key.length; i += 1) if (this.bytes[start + i] !== key[i]) return false
    return true
  }

  /** Returns the slot of the key, or the free slot for it. Null if a torn read finds neither. */
  find(key: Uint8Array): number | null {
    for (let slot = hashOf(key) & this.mask, tried = 0; tried <= this.mask; tried += 1) {
      if (this.length(slot) === 0 || this.holds(slot, key)) return slot
      slot = (slot + 1) & this.mask
    }
    return null
  }
}

/**
 * Returns a hash (FNV-1a, 32 bits). The appliance generates names and the operator chooses slugs, so an attacker cannot
 * choose colliding keys.
 */
function hashOf(key: Uint8Array): number {
  let hash = 0x811c9dc5
  for (const byte of key) hash = Math.imul(hash ^ byte, 0x01000193)
  return (hash ^ (hash >>> 15)) >>> 0
}

/** The only writer. */
export class NameTableWriter {
  readonly #slots: Slots
  readonly #sequence: Int32Array
  readonly #count: Int32Array
  readonly #partial: Int32Array

  constructor(memory: NameTableMemory) {
    this.#slots = new Slots(memory)
    this.#sequence = new Int32Array(memory.header, HEADER.sequence, 1)
    this.#count = new Int32Array(memory.header, HEADER.count, 1)
    this.#partial = new Int32Array(memory.header, HEADER.partial, 1)
  }

  /** Sets whether names are missing. If so, no lookup reports a name as absent. */
  setPartial(isPartial: boolean): void {
    Atomics.store(this.#partial, 0, isPartial ? 1 : 0)
  }

  /** Adds a name. Returns false if there is no space; the table is then unchanged. */
  set(key: string, { v4, v6 }: Addresses, fingerprint: Uint8Array | null = null): boolean {
    assert(fingerprint === null || fingerprint.length === VALUE_BYTES.fingerprint, 'a fingerprint is a SHA-256')
    const bytes = present(keyBytes(key), 'a name fits the table')
    const values = { v4: v4 === null ? null : v4Bytes(v4), v6: v6 === null ? null : v6Bytes(v6), fingerprint }
    const slot = present(this.#slots.find(bytes), 'the table always has a free slot')
    const isNew = this.#slots.length(slot) === 0
    const count = this.#count[0] ?? 0
    if (isNew && count >= (this.#slots.mask + 1) * loadMax) return false
    this.#write(() => {
      const start = slot * SLOT.bytes
      this.#slots.bytes.set(bytes, start + SLOT.key)
      for (const value of ['v4', 'v6', 'fingerprint'] as const) this.#slots.setValue(slot, value, values[value])
      this.#slots.words[(start + SLOT.length) >> 2] = bytes.length
      if (isNew) this.#count[0] = count + 1
    })
    return true
  }

  /** Removes a name. No effect if it does not exist. */
  remove(key: string): void {
    const slot = present(
      this.#slots.find(present(keyBytes(key), 'a name fits the table')),
      'the table always has a free slot',
    )
    if (this.#slots.length(slot) !== 0) this.#write(() => this.#remove(slot))
  }

  #write(change: () => void): void {
    Atomics.add(this.#sequence, 0, 1)
    change()
    Atomics.add(this.#sequence, 0, 1)
  }

  /** Closes the gap, so that every probe still ends at the first free slot (Knuth 6.4, algorithm R). */
  #remove(removed: number): void {
    const { bytes, words, mask } = this.#slots
    let gap = removed
    for (let slot = (gap + 1) & mask; this.#slots.length(slot) !== 0; slot = (slot + 1) & mask) {
      const start = slot * SLOT.bytes
      const home = hashOf(bytes.slice(start + SLOT.key, start + SLOT.key + this.#slots.length(slot))) & mask
      if (((slot - home) & mask) < ((slot - gap) & mask)) continue
      bytes.copyWithin(gap * SLOT.bytes, start, start + SLOT.bytes)
      gap = slot
    }
    words[(gap * SLOT.bytes + SLOT.length) >> 2] = 0
    this.#count[0] = (this.#count[0] ?? 1) - 1
  }
}

export type NameLookup =
  | ({ readonly kind: 'found' } & Readonly<Record<Value, Uint8Array | null>>)
  | { readonly kind: 'absent' | 'busy' }

export class NameTableReader {
  readonly #slots: Slots
  readonly #sequence: Int32Array
  readonly #partial: Int32Array

  constructor(memory: NameTableMemory) {
    this.#slots = new Slots(memory)
    this.#sequence = new Int32Array(memory.header, HEADER.sequence, 1)
    this.#partial = new Int32Array(memory.header, HEADER.partial, 1)
  }

  /** Looks up a name. `busy`: the writer holds the lock, or has not written every name yet; retry. */
  find(key: string): NameLookup {
    const bytes = keyBytes(key)
    if (bytes === null) return { kind: 'absent' }
    for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
      const before = Atomics.load(this.#sequence, 0)
      if ((before & 1) !== 0) continue
      const slot = this.#slots.find(bytes)
      const isThere = slot !== null && this.#slots.length(slot) !== 0
      const found: NameLookup = isThere
        ? {
            kind: 'found',
            v4: this.#slots.value(slot, 'v4'),
            v6: this.#slots.value(slot, 'v6'),
            fingerprint: this.#slots.value(slot, 'fingerprint'),
          }
        : { kind: Atomics.load(this.#partial, 0) === 1 ? 'busy' : 'absent' }
      if (Atomics.load(this.#sequence, 0) === before && slot !== null) return found
    }
    return { kind: 'busy' }
  }
}

function keyBytes(key: string): Uint8Array | null {
  const bytes = Buffer.from(key, 'latin1')
  return bytes.length === 0 || bytes.length > keyBytesMax ? null : bytes
}
