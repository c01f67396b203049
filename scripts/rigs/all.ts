/** True in `scripts/test --all`: long series of cases run whole, and not as a sample. */
export const runsAll = process.env.STRONGROOM_TEST_ALL === '1'
