// The fault that a piece of work throws.

import { Fault } from '../../src/base/fault.ts'

/** Throws when there is none, or when it is no Fault. */
export function faultOf(work: () => unknown): Fault {
  try {
    work()
  } catch (error) {
    if (error instanceof Fault) return error
    throw error
  }
  throw new Error('no fault')
}
