// strongroom doctor: checks this host; with --leaks, compares ledger and host. Effects: reads the host, requests to
// the daemon.

import { type AdminLeak, AdminLeaks } from '../../contract/admin/admin.ts'
import { EXIT } from '../../terminal/exit.ts'
import { dash, oneLine, type Paint, table } from '../../terminal/render.ts'
import type { Command, Run } from '../operator-run.ts'
import type { Check } from './check.ts'
import { collectHostFacts, leaksTimeoutMs } from './host.driver.ts'
import { judge } from './host.plan.ts'

export function addDoctor(program: Command): void {
  program
    .command('doctor')
    .description(
      'check whether this host has what strongroom needs. Exit code 0: no check is FAIL (WARN and SKIP may occur); 1: a check is FAIL, or a resource leaked',
    )
    .option('--leaks', 'report resources that are on the host but not in the ledger, and the reverse')
    .option('--no-canary', 'do not boot the canary VM, which shows in a few seconds whether guests run')
    .examples('strongroom doctor', 'strongroom doctor --leaks --json')
    .runs(async (run, { leaks, canary }: { leaks?: boolean; canary: boolean }) => {
      if (leaks === true) await reportLeaks(run)
      else await reportHost(run, { canary })
    })
}

async function reportHost(run: Run, { canary }: { readonly canary: boolean }): Promise<void> {
  const facts = await collectHostFacts({
    loaded: await run.config(),
    stateDir: run.stateDir,
    client: run.client(),
    progress: run.hint,
    canary,
  })
  const checks = judge(facts)
  const ok = checks.every(check => check.result !== 'FAIL')
  const platform = facts.config.platform === 'auto' ? facts.detected.platform : facts.config.platform
  await run.result({ ok, platform, checks }, checksText(checks, run.paint))
  if (!ok) run.exitWith(EXIT.failed)
}

async function reportLeaks(run: Run): Promise<void> {
  const found = await run.show(
    { path: '/leaks', response: AdminLeaks, timeoutMs: leaksTimeoutMs },
    ({ leaks }, paint) => leaksText(leaks, paint),
  )
  if (found.leaks.length > 0) run.exitWith(EXIT.failed)
}

function checksText(checks: readonly Check[], paint: Paint): string {
  const width = Math.max(...checks.map(check => check.name.length))
  return checks
    .map(({ name, result, detail, remedy }) => {
      const verdict = paint.word(result) + ' '.repeat('SKIP'.length - result.length)
      const line = `${verdict}  ${name.padEnd(width)}  ${oneLine(detail)}\n`
      return remedy === null ? line : `${line}${' '.repeat('SKIP'.length + width + 4)}remedy: ${oneLine(remedy)}\n`
    })
    .join('')
}

function leaksText(leaks: readonly AdminLeak[], paint: Paint): string {
  if (leaks.length === 0) return 'nothing leaked\n'
  const rows = leaks.map(leak => [leak.kind, leak.name, leak.detail, dash(leak.vm), leak.remedy].map(oneLine))
  return table(paint, ['KIND', 'NAME', 'DETAIL', 'VM', 'REMEDY'], rows)
}
