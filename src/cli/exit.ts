// Exit codes, the same for every command. Pure.

import { FAULTS, Fault, type FaultCode, type WireCode } from '../base/fault.ts'

export const EXIT = { ok: 0, failed: 1, usage: 2, unreachable: 3, notFound: 4, conflict: 5 } as const satisfies Record<
  string,
  number
>
export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

export const EXIT_HELP = `Exit codes:
  0  done
  1  failed, or a check did not pass
  2  usage or bad input, the configuration file included
  3  the daemon cannot be reached
  4  not found
  5  conflict with the present state`

export function exitCodeOf(error: unknown): ExitCode {
  if (!(error instanceof Fault)) return EXIT.failed
  return error.code === 'admin.unreachable' ? EXIT.unreachable : BY_WIRE[FAULTS[error.code].wire]
}

const BY_WIRE = {
  invalid_request: EXIT.usage,
  unauthenticated: EXIT.failed,
  forbidden: EXIT.failed,
  not_found: EXIT.notFound,
  conflict: EXIT.conflict,
  internal_error: EXIT.failed,
} as const satisfies Record<WireCode, ExitCode>

export function isFaultCode(code: string): code is FaultCode {
  return Object.hasOwn(FAULTS, code)
}
