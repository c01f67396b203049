// User ids of one test process: two files side by side, or two suites on one machine, do not end each other's
// processes, and the kernel does not count them together (RLIMIT_NPROC of setrlimit(2)). Pure.

const firstUid = 2_000_000
export const uidsPerProcess = 64
/** Test processes whose ids differ. */
const processesMax = 50_000

/** The first of `uidsPerProcess` ids that no other living test process of this machine uses. */
export function firstOwnUid(): number {
  return firstUid + (process.pid % processesMax) * uidsPerProcess
}
