// Which of the points of a scenario are tried. Pure.

/**
 * `count` of the positions in `effects`, ascending, spread evenly, and by chance within each share; the same for the
 * same seed. Equal effects in a row, such as the pages of one commit, are one place: further points of a place come
 * only once each place has one.
 */
export function choosePoints(effects: readonly string[], count: number | 'all', seed: number): number[] {
  const all = effects.map((_, at) => at)
  if (count === 'all' || count >= all.length) return all
  const random = randomOf(seed)
  const places = rowsOf(effects)
  if (count <= places.length)
    return spread(places, count, random).map(({ from, length }) => from + Math.floor(random() * length))
  const first = places.map(({ from }) => from)
  const others = all.filter(at => !first.includes(at))
  return [...first, ...spread(others, count - first.length, random)].sort((a, b) => a - b)
}

type Row = { readonly from: number; readonly length: number }

/** Equal neighbours together. */
function rowsOf(effects: readonly string[]): Row[] {
  const starts = effects.flatMap((effect, at) => (at === 0 || effects[at - 1] !== effect ? [at] : []))
  return starts.map((from, at) => ({ from, length: (starts[at + 1] ?? effects.length) - from }))
}

/** One item of each of `count` equal shares. */
function spread<T>(items: readonly T[], count: number, random: () => number): T[] {
  return Array.from({ length: count }, (_, at) => {
    const from = Math.floor((at * items.length) / count)
    const to = Math.floor(((at + 1) * items.length) / count)
    return items.slice(from, to)
  }).flatMap(share => share.slice(Math.floor(random() * share.length)).slice(0, 1))
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
