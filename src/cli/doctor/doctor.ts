// strongroom doctor: checks this host; with --leaks, compares ledger and host. Effects: reads the host, requests to
// the daemon.

import { utf8 } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { defaultConfig } from '../../config/load.ts'
import type { Config } from '../../config/schema.ts'
import { type AdminLeak, AdminLeaks } from '../../contract/admin/admin.ts'
import { ignoreProxyVariables } from '../../linux/net/outgoing.ts'
import { EXIT } from '../../terminal/exit.ts'
import { writeOutputs } from '../../terminal/output-file.ts'
import { dash, oneLine, type Paint, table } from '../../terminal/render.ts'
import type { Command, Run } from '../operator-run.ts'
import type { Check } from './check.ts'
import { collectHostFacts, leaksTimeoutMs } from './host.driver.ts'
import { judge } from './host.plan.ts'
import { collectMachineReport } from './machine/report.driver.ts'
import { hardwareReport } from './machine/report.ts'

export function addDoctor(program: Command): void {
  program
    .command('doctor')
    .description(
      'check whether this host has what strongroom needs. Exit code 0: no check is FAIL (WARN and SKIP may occur); 1: a check is FAIL, or a resource leaked',
    )
    .option('--leaks', 'report resources that are on the host but not in the ledger, and the reverse')
    .option('--no-canary', 'do not boot the canary VM, which shows in a few seconds whether guests run')
    .option(
      '--report <file>',
      'also write what developers need to know about SEV-SNP on this host: versions, CPUID, kernel messages, checks of a launch; no text of the configuration',
    )
    .examples('strongroom doctor', 'strongroom doctor --report report.json', 'strongroom doctor --leaks --json')
    .runs(async (run, { leaks, canary, report }: { leaks?: boolean; canary: boolean; report?: string }) => {
      if (leaks === true) await reportLeaks(run)
      else await reportHost(run, { canary, report })
    })
}

async function reportHost(
  run: Run,
  { canary, report }: { readonly canary: boolean; readonly report: string | undefined },
): Promise<void> {
  ignoreProxyVariables()
  const facts = await collectHostFacts({
    loaded: await run.config(),
    stateDir: run.stateDir,
    client: run.client(),
    progress: run.hint,
    canary,
  })
  const checks = judge(facts)
  if (report !== undefined) await writeReport(run, report, { checks, config: facts.config })
  const ok = checks.every(check => check.result !== 'FAIL')
  const platform = facts.config.platform === 'auto' ? facts.detected.platform : facts.config.platform
  await run.result({ ok, platform, checks }, checksText(checks, run.paint))
  if (!ok) run.exitWith(EXIT.failed)
}

async function writeReport(
  run: Run,
  path: string,
  { checks, config }: { readonly checks: readonly Check[]; readonly config: Config },
): Promise<void> {
  const machine = await collectMachineReport()
  const text = hardwareReport(machine, { checks, config, defaults: defaultConfig(), madeAt: iso(systemClock.nowMs()) })
  writeOutputs([{ path, param: 'report', bytes: utf8(text) }], { replaces: true })
  await run.hint(`${path}: the configuration's texts are left out; read it before you send it`)
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
