// Which of the points of a scenario are tried. Pure.

/** `count` numbers below `total`, ascending and spread evenly, where each is by chance within its share; the same for the same seed. */
export function choosePoints(total: number, count: number | 'all', seed: number): number[] {
  if (count === 'all' || count >= total) return Array.from({ length: total }, (_, at) => at)
  const random = randomOf(seed)
  return Array.from({ length: count }, (_, at) => {
    const from = Math.floor((at * total) / count)
    const to = Math.floor(((at + 1) * total) / count)
    return from + Math.floor(random() * (to - from))
  })
}

/** Numbers from 0 to 1: the mulberry32 generator. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000
  }
}
