// Build VMs of one test process at a time. The tests of a file run beside each other: a build waits about as long as it
// computes, and more of them at once would only bring each nearer to its bounds. Pure: state in memory.

export const placesMax = 3

export type VmPlace = Disposable & {
  /** Below `placesMax`; no other VM of this process has it. */
  readonly index: number
}

const free = Array.from({ length: placesMax }, (_, index) => index)
const waiting: ((index: number) => void)[] = []

/**
 * Takes a place; disposing it gives it back. A test that holds one must not wait for another: the tests beside it may
 * do the same.
 */
export async function takeVmPlace(): Promise<VmPlace> {
  const index = free.pop() ?? (await new Promise<number>(resolve => waiting.push(resolve)))
  let isHeld = true
  return {
    index,
    [Symbol.dispose]: () => {
      if (!isHeld) return
      isHeld = false
      const next = waiting.shift()
      if (next === undefined) free.push(index)
      else next(index)
    },
  }
}
