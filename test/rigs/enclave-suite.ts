// The gateway's own tests, run against the enclave: the same files in a `bun test` of their own, in which rigs/gateway-server.ts and
// rigs/real-gateway.ts start each gateway as an enclave. `bun test/rigs/enclave-suite.ts FILE…` runs some of them. Effects: processes, files.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { judge, skipReasonsOf, type Tally, type TestCase, testCasesOf } from '../../scripts/lib/junit.ts'
import { PHASES } from '../../scripts/lib/phases.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { openAuthority } from '../../src/http/authority.ts'

export type SuiteRun = Tally & {
  readonly cases: readonly TestCase[]
  /** Why some were left out, in the order of the files. */
  readonly reasons: readonly string[]
  readonly output: string
}

const root = resolve(import.meta.dir, '../..')
/** What starts a gateway, in this process or in a program of its own. */
const starts = /\b(?:startGateway|startRealGateway|eachWithGateway)\(|rigs\/gateway-load-plan\.ts/
/** Those who want to see VMs boot and models run start them themselves. */
const files = 'test/inference/**/!(*.image|*.root).test.ts'

/** Every test file of the gateway, from the repository's root. Whoever adds one has it here, too. */
export function gatewayTestFiles(): string[] {
  return [...new Bun.Glob(files).scanSync({ cwd: root })]
    .filter(file => !/\.(?:image|root)\.test\.ts$/.test(file) && starts.test(readFileSync(join(root, file), 'utf8')))
    .sort()
}

export async function runAgainstEnclave(chosen: readonly string[], timeoutMs: number): Promise<SuiteRun> {
  const dir = mkdtempSync(join(tmpdir(), 'srt-suite-'))
  try {
    const random = systemRandom
    const nowMs = systemClock.nowMs
    const authority = await openAuthority({ kind: 'clients', stateDir: dir, names: ['localhost'], nowMs, random })
    const reportFile = join(dir, 'report.xml')
    const child = Bun.spawn(
      [
        ...[process.execPath, 'test', `--timeout=${PHASES.slow.testTimeoutMs}`],
        ...['--reporter=junit', `--reporter-outfile=${reportFile}`, ...chosen.map(file => `./${file}`)],
      ],
      {
        cwd: root,
        env: {
          ...process.env,
          NO_COLOR: '1',
          STRONGROOM_TEST_GATEWAY: 'enclave',
          STRONGROOM_TEST_AUTHORITY: dir,
          // Every client of these tests trusts the host's authority, without a word in its test.
          NODE_EXTRA_CA_CERTS: authority.caFile,
          TMPDIR: dir,
        },
        stdin: 'ignore',
        stdout: 'pipe',
        stderr: 'pipe',
        timeout: timeoutMs,
      },
    )
    const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
    const report = await Bun.file(reportFile)
      .text()
      .catch(() => null)
    const output = stdout + stderr
    const timedOut = child.signalCode !== null
    const tally = judge({ files: chosen, report, exitCode: child.exitCode, timedOut, timeoutMs, output })
    return { ...tally, cases: testCasesOf(report ?? ''), reasons: skipReasonsOf(output), output }
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}

if (import.meta.main) {
  const asked = process.argv.slice(2)
  const run = await runAgainstEnclave(asked.length === 0 ? gatewayTestFiles() : asked, 1_200_000)
  process.stdout.write(run.output)
  process.exit(run.failed === 0 ? 0 : 1)
}
