// How a command ends when it fails: exit codes, the same for every command, and what to do about it. Pure.

import { FAULTS, Fault, type FaultCode, type FaultOptions, systemErrorCode, type WireCode } from '../base/fault.ts'
import { REMEDIES } from '../base/remedies.ts'

export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  unreachable: 3,
  notFound: 4,
  conflict: 5,
  refused: 6,
} as const satisfies Record<string, number>
export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

export const EXIT_HELP = `Exit codes:
  0  done
  1  failed, or a check did not pass
  2  bad usage or bad input; the configuration file counts as input
  3  no daemon, service A or gateway answers, or not to the end; or no collateral, with --fetch
  4  not found
  5  conflict with the current state
  6  genuine evidence, which a policy, a pin or a floor refuses, or for which you named no required pin`

export function exitCodeOf(error: unknown): ExitCode {
  if (!(error instanceof Fault)) return EXIT.failed
  if (error instanceof NoCollateralFault) return EXIT.unreachable
  const isUnreachable = error.code === 'admin.unreachable' || error.code === 'api.unreachable'
  return isUnreachable ? EXIT.unreachable : BY_WIRE[FAULTS[error.code].wire]
}

const BY_WIRE = {
  invalid_request: EXIT.usage,
  unauthenticated: EXIT.failed,
  forbidden: EXIT.failed,
  not_found: EXIT.notFound,
  conflict: EXIT.conflict,
  internal_error: EXIT.failed,
} as const satisfies Record<WireCode, ExitCode>

/** A failure with a better remedy than the one in the table of base/fault.ts. */
export class AdvisedFault extends Fault {
  readonly remedy: string

  constructor(code: FaultCode, message: string, { remedy, ...options }: FaultOptions & { readonly remedy: string }) {
    super(code, message, options)
    this.name = 'AdvisedFault'
    this.remedy = remedy
  }
}

/** A service did not serve collateral. Without it nothing was judged, so this is no verdict on the evidence. */
export class NoCollateralFault extends AdvisedFault {
  constructor(message: string, options: FaultOptions & { readonly remedy: string }) {
    super('attest.unavailable', message, options)
    this.name = 'NoCollateralFault'
  }
}

/** Bad input to a command: an option, or a file that one names. `remedy` is for this particular input. */
export class InputFault extends AdvisedFault {
  constructor(message: string, options: FaultOptions & { readonly remedy: string }) {
    super('invalid_request', message, options)
    this.name = 'InputFault'
  }
}

/** Remedy of a failure for the reader of a command line; some differ from the table of base/fault.ts. */
export function remedyOf(error: unknown): string {
  if (error instanceof AdvisedFault) return error.remedy
  if (!(error instanceof Fault)) return REMEDIES.internal
  if (error.code === 'invalid_request') return 'correct the option or argument that the message names'
  // The file could not be read at all, so that no field of it is at fault.
  if (error.code === 'config.invalid' && systemErrorCode(error.cause) !== null) return 'check the path; see --config'
  return REMEDIES[error.code]
}

export function isFaultCode(code: string): code is FaultCode {
  return Object.hasOwn(FAULTS, code)
}
