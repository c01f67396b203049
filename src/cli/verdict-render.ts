// Verdicts for people and for programs: one line for each check, then the verdict. Pure.

import type { Check, Outcome, Verdict } from '../attest/verdict.ts'
import { harmless, type Paint } from './render.ts'

/** `simulated`: the evidence ends at a root that is not AMD's. Left out where there is no evidence of a platform. */
export type ShownVerdict = Verdict & { readonly simulated?: boolean }

const WORDS = { pass: 'PASS', fail: 'FAIL', 'not-checked': 'NOT CHECKED' } as const satisfies Record<Outcome, string>

/** The lines on stdout. The verdict is the last. */
export function verdictText(verdict: ShownVerdict, paint: Paint): string {
  return [...verdict.checks.map(check => checkLine(check, paint)), verdictLine(verdict, paint)].join('')
}

/** With --json: `simulated` beside `ok`, so that nobody reads one without the other. */
export function verdictDocument({ ok, simulated, checks }: ShownVerdict) {
  return {
    ok,
    ...(simulated === undefined ? {} : { simulated }),
    checks: checks.map(({ name, outcome, reason, required }) => ({ name, result: WORDS[outcome], reason, required })),
  }
}

function checkLine({ name, outcome, reason, required }: Check, paint: Paint): string {
  const remark = outcome === 'not-checked' && required ? ' (required)' : ''
  return `${paint.word(WORDS[outcome])} ${name}: ${oneLine(reason === '' ? 'ok' : reason)}${remark}\n`
}

function verdictLine({ ok, simulated, checks }: ShownVerdict, paint: Paint): string {
  const count = (outcome: Outcome) => checks.filter(check => check.outcome === outcome).length
  const missing = checks.filter(check => check.outcome === 'not-checked' && check.required).length
  const notChecked = `${count('not-checked')} not checked${missing === 0 ? '' : ` (${missing} required)`}`
  const counts = `${count('pass')} passed, ${count('fail')} failed, ${notChecked}`
  const remark = simulated === true ? ' SIMULATED, no hardware vouches for this evidence' : ''
  return `${paint.strong('VERDICT:')} ${paint.word(ok ? 'PASS' : 'FAIL')}${remark}: ${counts}\n`
}

/** Reasons repeat names out of certificates, which are whatever somebody wrote into them. */
function oneLine(reason: string): string {
  return harmless(reason.replace(/[\r\n\t]+/g, ' '))
}
