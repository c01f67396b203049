// Verdicts and refusals in the form of the suite's results. Pure.

import { Malformed, type Verdict } from '../../../src/attest/index.ts'

export type Told = {
  readonly ok: boolean
  /** Names of the checks that failed. */
  readonly failed: readonly string[]
  /** Every check: outcome, name, whether it is required, and the reason. */
  readonly checks: readonly string[]
}

export function told({ ok, checks }: Pick<Verdict, 'ok' | 'checks'>): Told {
  return {
    ok,
    failed: checks.filter(check => check.outcome === 'fail').map(check => check.name),
    checks: checks.map(
      check => `${check.outcome} ${check.name}${check.required ? '' : ' (not required)'}: ${check.reason}`,
    ),
  }
}

/**
 * The value, or the message of Malformed. Anything else that is thrown is a defect of the library, and is thrown again.
 */
export async function orRefused<T>(read: () => T | Promise<T>): Promise<T | { readonly refused: string }> {
  try {
    return await read()
  } catch (error) {
    if (error instanceof Malformed) return { refused: error.message }
    throw error
  }
}
