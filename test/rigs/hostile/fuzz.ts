// Seeded mutations of byte strings, for tests that must hold for hostile input. Bounded; a failure names the seed that
// repeats it.
//
// STRONGROOM_FUZZ_SEED=<0 to 4294967295> repeats a run.

import { casesOf } from '../../../scripts/rigs/all.ts'

const kinds = ['random', 'flipped', 'overwritten', 'truncated', 'extended', 'spliced'] as const

export type Mutation = { readonly kind: (typeof kinds)[number]; readonly bytes: Uint8Array }

export type FuzzOptions = {
  /** Inputs to mutate: at least one well-formed. */
  readonly samples: readonly Uint8Array[]
  /** How many mutations; `fuzz` makes a sample of them unless all cases run. */
  readonly count: number
  /** Size limit of `random` inputs and of appended bytes. */
  readonly sizeBytesMax?: number
  /** In the place of the environment's or a fresh one. */
  readonly seed?: number
}

/** Gives each mutation to `body` in turn. Rethrows its errors with the case and the seed. */
export async function fuzz(options: FuzzOptions, body: (bytes: Uint8Array) => unknown): Promise<void> {
  const seed = options.seed ?? fuzzSeed()
  const count = casesOf(options.count)
  let at = 0
  for (const { kind, bytes } of mutations({ ...options, count, seed })) {
    try {
      await body(bytes)
    } catch (cause) {
      const repeat = `repeat with STRONGROOM_FUZZ_SEED=${seed}`
      throw new Error(`fuzz case ${at} of ${count} (${kind}, ${bytes.length} bytes): ${cause}; ${repeat}`, {
        cause,
      })
    }
    at += 1
  }
}

/** The same for the same seed. */
export function* mutations(options: FuzzOptions & { readonly seed: number }): Generator<Mutation> {
  const { samples, count, sizeBytesMax = 4096, seed } = options
  const below = generator(seed)
  const some = (size: number) => Uint8Array.from({ length: size }, () => below(256))
  const sample = () => Uint8Array.from(samples[below(samples.length)] ?? [])
  for (let i = 0; i < count; i += 1) {
    const kind = kinds[below(kinds.length)] ?? 'random'
    const bytes = sample()
    if (kind === 'random') yield { kind, bytes: some(below(sizeBytesMax + 1)) }
    else if (kind === 'flipped') yield { kind, bytes: flip(bytes, below) }
    else if (kind === 'overwritten') yield { kind, bytes: overwrite(bytes, below) }
    else if (kind === 'truncated') yield { kind, bytes: bytes.slice(0, below(bytes.length + 1)) }
    else if (kind === 'extended') yield { kind, bytes: Uint8Array.from([...bytes, ...some(1 + below(sizeBytesMax))]) }
    else yield { kind, bytes: splice(bytes, sample(), below) }
  }
}

/** The environment's seed, or a fresh one. */
export function fuzzSeed(): number {
  const given = process.env.STRONGROOM_FUZZ_SEED
  if (given === undefined || given === '') return crypto.getRandomValues(new Uint32Array(1))[0] ?? 0
  const seed = Number(given)
  if (!Number.isInteger(seed) || seed < 0 || seed > 0xffff_ffff) throw new Error(`STRONGROOM_FUZZ_SEED: ${given}`)
  return seed
}

export type Below = (limit: number) => number

/** A whole number below the limit. Mulberry32: small, repeatable, good enough for tests. */
export function generator(seed: number): Below {
  let state = seed >>> 0
  return limit => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000) * limit)
  }
}

/** 1 to 8 single bits. */
function flip(bytes: Uint8Array, below: Below): Uint8Array {
  for (let left = 1 + below(8); left > 0 && bytes.length > 0; left -= 1) {
    const at = below(bytes.length)
    bytes[at] = (bytes[at] ?? 0) ^ (1 << below(8))
  }
  return bytes
}

/** A run of up to 16 bytes becomes all zeros, all ones or noise: what breaks lengths and counts. */
function overwrite(bytes: Uint8Array, below: Below): Uint8Array {
  const start = below(bytes.length + 1)
  const fill = below(3)
  for (let at = start; at < Math.min(bytes.length, start + 1 + below(16)); at += 1) {
    bytes[at] = fill === 0 ? 0 : fill === 1 ? 0xff : below(256)
  }
  return bytes
}

/** The beginning of one and the end of the other. */
function splice(a: Uint8Array, b: Uint8Array, below: Below): Uint8Array {
  return Uint8Array.from([...a.subarray(0, below(a.length + 1)), ...b.subarray(below(b.length + 1))])
}
