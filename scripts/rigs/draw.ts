// Numbers that look random and are the same in every run. State in memory.

/** Each call draws a whole number from 0 up to, and without, `count`. By mulberry32: 2^32 draws until they repeat. */
export function createDraw(seed: number): (count: number) => number {
  let state = seed >>> 0
  return count => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * count)
  }
}
