// One check of `strongroom doctor`, and how its verdict is said. Pure.

/** WARN: it works, but less is held back than `strongroom help threats` says. */
export type Verdict = 'PASS' | 'WARN' | 'FAIL' | 'SKIP'
export type Check = {
  readonly name: string
  readonly result: Verdict
  readonly detail: string
  /** Advice; null where nothing needs doing. */
  readonly remedy: string | null
}

/** The result of looking at one thing: what was found, or why that failed. */
export type Outcome = { readonly ok: true; readonly text: string } | { readonly ok: false; readonly text: string }

export function fromOutcome(name: string, outcome: Outcome, remedy: string): Check {
  return outcome.ok ? pass(name, outcome.text) : fail(name, outcome.text, remedy)
}

export function pass(name: string, detail: string): Check {
  return { name, result: 'PASS', detail, remedy: null }
}

export function fail(name: string, detail: string, remedy: string): Check {
  return { name, result: 'FAIL', detail, remedy }
}

export function warn(name: string, detail: string, remedy: string): Check {
  return { name, result: 'WARN', detail, remedy }
}

export function skip(name: string, detail: string): Check {
  return { name, result: 'SKIP', detail, remedy: null }
}
