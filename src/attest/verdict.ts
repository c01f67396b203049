// A verdict is a value: named checks, each with an outcome and a reason. Pure.

export type Outcome = 'pass' | 'fail' | 'not-checked'

export type Check = {
  /** Stable, kebab-case; what machines match on. */
  readonly name: string
  readonly outcome: Outcome
  /** For people: what was compared with what. Not empty for `fail` and `not-checked`. */
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

/** The caller skips this check ('any'), or the evidence lacks its input. `required` unless the caller skips it. */
export function notChecked(name: string, reason: string, required: boolean): Check {
  return { name, outcome: 'not-checked', reason, required }
}

/** `pass` when `holds`, else `fail` with the reason. */
export function check(name: string, holds: boolean, failure: string, success = ''): Check {
  return holds ? pass(name, success) : fail(name, failure)
}

/** It keeps a verdict from being good. */
export function isBroken({ outcome, required }: Check): boolean {
  return outcome === 'fail' || (outcome === 'not-checked' && required)
}

/** Good only with at least one check and every required one passed. A failed check makes it bad, required or not. */
export function verdict(checks: readonly Check[]): Verdict {
  const bad = checks.some(isBroken)
  return { ok: checks.length > 0 && !bad, checks }
}
