// Numbers that look random and are the same in every run. State in memory.

/** Each call draws a whole number from 0 up to, and without, `count`. */
export function createDraw(seed: number): (count: number) => number {
  let state = seed
  return count => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    return Math.floor((state / 2 ** 31) * count)
  }
}
