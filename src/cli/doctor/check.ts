// One check of `strongroom doctor`, and the text of its verdict. Effects: those of the work that is looked at.

import { messageOf } from '../../base/fault.ts'

/** WARN: it works, but with less protection than `strongroom help threats` describes. */
export type Verdict = 'PASS' | 'WARN' | 'FAIL' | 'SKIP'
export type Check = {
  readonly name: string
  readonly result: Verdict
  readonly detail: string
  /** Advice; null if nothing needs to be done. */
  readonly remedy: string | null
  /** Only the daemon's list of problems has it: it is about what runs now, and not about the host. */
  readonly isOfDaemon?: true
}

/** The result of looking at one thing: what was found, or why that failed. */
export type Outcome = { readonly ok: true; readonly text: string } | { readonly ok: false; readonly text: string }

/** Never throws. */
export async function outcomeOf(work: () => string | Promise<string>): Promise<Outcome> {
  try {
    return { ok: true, text: await work() }
  } catch (error) {
    return { ok: false, text: messageOf(error) }
  }
}

export function fromOutcome(name: string, outcome: Outcome, remedy: string): Check {
  return outcome.ok ? pass(name, outcome.text) : fail(name, outcome.text, remedy)
}

/** An image of VMs on disk. */
export type ImageFacts = {
  readonly image: Outcome
  /** The launch digest that its manifest has for the configured shape; null when there is no image. */
  readonly measurement: Outcome | null
}

/** `kind`: before both names. */
export function imageChecks(
  { image, measurement }: ImageFacts,
  kind: string,
  remedies: Readonly<Record<'image' | 'measurement', string>>,
): Check[] {
  const name = `${kind}measurement`
  return [
    fromOutcome(`${kind}image`, image, remedies.image),
    measurement === null ? skip(name, 'there is no image') : fromOutcome(name, measurement, remedies.measurement),
  ]
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
