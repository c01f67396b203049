/** True in `scripts/test --all`: long series of cases run whole, and not as a sample. */
export const runsAll = process.env.STRONGROOM_TEST_ALL === '1'

/** All of a series of `count` cases in such a run, otherwise the first fifth. */
export function casesOf(count: number): number {
  return runsAll ? count : Math.ceil(count / 5)
}
