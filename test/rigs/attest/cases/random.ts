// Numbers that a seed decides (mulberry32): a case that two implementations judge differently can be made again. Pure.

export type Random = {
  /** From 0 up to, without, `below`. */
  readonly int: (below: number) => number
  /** True in one of `times` cases. */
  readonly oneIn: (times: number) => boolean
  readonly pick: <T>(items: readonly T[]) => T
  readonly bytes: (size: number) => Uint8Array
}

export function randomOf(seed: number): Random {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return (mixed ^ (mixed >>> 14)) >>> 0
  }
  const int = (below: number) => next() % below
  return {
    int,
    oneIn: times => int(times) === 0,
    pick: items => {
      const item = items[int(items.length)]
      if (item === undefined) throw new Error('nothing to pick from')
      return item
    },
    bytes: size => Uint8Array.from({ length: size }, () => next() & 0xff),
  }
}
