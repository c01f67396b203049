// A verdict is a value: named checks, each with an outcome and a reason. Pure.

export type Outcome = 'pass' | 'fail' | 'not-checked'

export type Check = {
  /** Stable name in kebab-case, for programs. */
  readonly name: string
  readonly outcome: Outcome
  /** Explanation for people of what was compared with what. Not empty for `fail` and `not-checked`. */
  readonly reason: string
  /** A verdict is good only if every required check passed. */
  readonly required: boolean
}

export type Verdict = {
  readonly ok: boolean
  readonly checks: readonly Check[]
}

export function pass(name: string, reason = ''): Check {
  return { name, outcome: 'pass', reason, required: true }
}

export function fail(name: string, reason: string): Check {
  return { name, outcome: 'fail', reason, required: true }
}

/**
 * Makes a check that the caller skips ('any') or for which the evidence lacks input. `required` unless the caller skips
 * it.
 */
export function notChecked(name: string, reason: string, required: boolean): Check {
  return { name, outcome: 'not-checked', reason, required }
}

/** Makes a check: `pass` if `holds`, otherwise `fail` with the reason. */
export function check(name: string, holds: boolean, failure: string, success = ''): Check {
  return holds ? pass(name, success) : fail(name, failure)
}

/** Reports whether the check keeps a verdict from being good. */
export function isBroken({ outcome, required }: Check): boolean {
  return outcome === 'fail' || (outcome === 'not-checked' && required)
}

/**
 * Makes a verdict. It is good only if there are checks and every required one passed. Any failed check makes it bad.
 */
export function verdict(checks: readonly Check[]): Verdict {
  const bad = checks.some(isBroken)
  return { ok: checks.length > 0 && !bad, checks }
}
