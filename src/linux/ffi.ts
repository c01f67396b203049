// Functions of glibc by bun:ffi. Effects: loads libc.so.6 when they are first asked for.

import { dlopen, type FFIFunction, FFIType, type Library, read } from 'bun:ffi'
import { Fault, messageOf } from '../base/fault.ts'

type Functions = Readonly<Record<string, FFIFunction>>

/** The returned function loads them once. Fault host.unsupported. */
export function libcOf<F extends Functions>(functions: F): () => Library<F>['symbols'] {
  let loaded: Library<F>['symbols'] | undefined
  return () => {
    if (loaded === undefined) {
      loaded = load(functions)
      // Loaded first: loading it later could change errno.
      errnoLocation ??= load(locating)
    }
    return loaded
  }
}

const locating = { __errno_location: { args: [], returns: FFIType.ptr } } as const
let errnoLocation: Library<typeof locating>['symbols'] | undefined

/** errno(3) of the last call of such a function on this thread. Read it at once. */
export function errno(): number {
  const location = errnoLocation?.__errno_location()
  return typeof location === 'number' ? read.i32(location, 0) : 0
}

function load<F extends Functions>(functions: F): Library<F>['symbols'] {
  try {
    return dlopen('libc.so.6', functions).symbols
  } catch (error) {
    throw new Fault('host.unsupported', `load libc.so.6: ${messageOf(error)}`, { cause: error })
  }
}

/** `errno` is the number of errno(3); compare with `os.constants.errno`. */
export type SystemResult =
  | { readonly ok: true; readonly value: number }
  | { readonly ok: false; readonly errno: number }

/** The result of a system call that returns -1 on failure. */
export function result(value: number): SystemResult {
  return value === -1 ? { ok: false, errno: errno() } : { ok: true, value }
}
