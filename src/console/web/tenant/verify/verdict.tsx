// A verdict with its named checks: what failed and what was not made first, then what passed, then each receipt.

import type { Check } from '../../../../attest/verdict.ts'
import { Card, Facts } from '../../parts/page.tsx'
import { Foreign, StateMark } from '../../parts/text.tsx'
import type { Judged, JudgedReceipt } from './judge.ts'

const ORDER = { fail: 0, 'not-checked': 1, pass: 2 } as const
const WORDS = { fail: 'failed', 'not-checked': 'not checked', pass: 'passed' } as const

export function Verdict({ judged }: { judged: Judged }) {
  const { ok, simulated, checks, receipts, shows } = judged
  const count = (outcome: Check['outcome']) => checks.filter(check => check.outcome === outcome).length
  const tone = !ok ? 'bad' : simulated ? 'warn' : 'good'
  return (
    <div class="verdict">
      <div class={`note ${tone}`} role="status">
        <p class="verdict-word">
          {ok ? 'PASS' : 'FAIL'}
          {simulated && ', SIMULATED: no hardware vouches for it'}
        </p>
        <p>
          {checks.length} checks: {count('pass')} passed, {count('fail')} failed, {count('not-checked')} not made.
          Judged in this browser at {new Date(judged.asOf).toISOString()}.
        </p>
      </div>
      <Card title={ok ? 'What it shows' : 'What it says; do not rely on it'} wide>
        <Facts rows={shows.map(([name, value]) => [name, <Foreign text={value} />] as const)} />
      </Card>
      <Card title="Checks" wide>
        <Checks checks={checks} />
      </Card>
      {receipts.map(receipt => (
        <Receipt key={receipt.name} receipt={receipt} />
      ))}
    </div>
  )
}

function Receipt({ receipt: { name, ok, checks } }: { receipt: JudgedReceipt }) {
  return (
    <details class="card">
      <summary>
        Receipt of {name} <StateMark word={ok ? 'PASS' : 'FAIL'} tone={ok ? 'good' : 'bad'} />
        <span class="muted"> {checks.length} checks</span>
      </summary>
      <Checks checks={checks} />
    </details>
  )
}

function Checks({ checks }: { checks: readonly Check[] }) {
  const sorted = checks.toSorted((a, b) => ORDER[a.outcome] - ORDER[b.outcome])
  return (
    <ul class="checks">
      {sorted.map(({ name, outcome, reason, required }, at) => (
        <li key={`${name} ${at}`}>
          <span>
            <StateMark word={WORDS[outcome]} tone={toneOf(outcome, required)} />
          </span>
          <code>{name}</code>
          <Foreign text={reason} none="" />
        </li>
      ))}
    </ul>
  )
}

/** A check that was waived does not make the verdict bad; one that lacks its input does. */
function toneOf(outcome: Check['outcome'], required: boolean): 'good' | 'warn' | 'bad' {
  if (outcome === 'pass') return 'good'
  return outcome === 'not-checked' && !required ? 'warn' : 'bad'
}
