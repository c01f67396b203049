// strongroom doctor: what this host has and lacks; with --leaks, where the ledger and the host differ. Effects: looks at the host, requests to the daemon.

import type { Command } from 'commander'
import { type AdminLeak, AdminLeaks } from '../../../contract/admin.ts'
import { type Cli, helpText, type Run, runOf } from '../../cli.ts'
import { EXIT } from '../../exit.ts'
import { dash, oneLine, type Paint, table } from '../../render.ts'
import type { Check } from './check.ts'
import { lookAtHost } from './host.driver.ts'
import { judge } from './host.plan.ts'

const leaksTimeoutMs = 60_000

export function addDoctor(program: Command, cli: Cli): void {
  program
    .command('doctor')
    .description(
      'check whether this host has what strongroom needs; exit code 1 when a check says FAIL or something leaked',
    )
    .option('--leaks', 'ask the daemon what is on the host but not in its ledger, and the reverse')
    .addHelpText('after', helpText('strongroom doctor', 'strongroom doctor --leaks --json'))
    .action(async (options: { leaks?: boolean }, command: Command) => {
      const run = runOf(cli, command)
      if (options.leaks === true) await reportLeaks(run)
      else await reportHost(run)
    })
}

async function reportHost(run: Run): Promise<void> {
  const facts = await lookAtHost({
    loaded: run.config(),
    stateDir: run.stateDir,
    client: run.client(),
    progress: run.hint,
  })
  const checks = judge(facts)
  const ok = checks.every(check => check.result !== 'FAIL')
  const platform = facts.config.platform === 'auto' ? facts.detected.platform : facts.config.platform
  await run.result({ ok, platform, checks }, checksText(checks, run.paint))
  if (!ok) run.exitWith(EXIT.failed)
}

async function reportLeaks(run: Run): Promise<void> {
  const found = await run.client().request({ path: '/leaks', response: AdminLeaks, timeoutMs: leaksTimeoutMs })
  await run.result(found, leaksText(found.leaks, run.paint))
  if (found.leaks.length > 0) run.exitWith(EXIT.failed)
}

function checksText(checks: readonly Check[], paint: Paint): string {
  const width = Math.max(...checks.map(check => check.name.length))
  return checks
    .map(({ name, result, detail, remedy }) => {
      const verdict = paint.word(result) + ' '.repeat('SKIP'.length - result.length)
      const line = `${verdict}  ${name.padEnd(width)}  ${detail.replaceAll('\n', ' ')}\n`
      return remedy === null ? line : `${line}${' '.repeat('SKIP'.length + width + 4)}remedy: ${remedy}\n`
    })
    .join('')
}

function leaksText(leaks: readonly AdminLeak[], paint: Paint): string {
  if (leaks.length === 0) return 'nothing leaked\n'
  const rows = leaks.map(leak => [leak.kind, leak.name, leak.detail, dash(leak.vm), leak.remedy].map(oneLine))
  return table(['KIND', 'NAME', 'DETAIL', 'VM', 'REMEDY'], rows, paint)
}
