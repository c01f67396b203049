// Versions of the build's programs, and the digests of their files. Effects: runs them, reads them.

import * as fs from 'node:fs'
import { isChannelOf, type PinnedCompiler } from '../attest/provenance/compiler.ts'
import type { Tool } from '../attest/provenance/record.ts'
import { runProgram } from './confined/program.ts'
import { sha256Of } from './digest.ts'
import { refuseUnless } from './failure.ts'
import { type Phase, places, plainEnvironment, uids } from './phase.ts'
import { recordedTool, type ToolName, VERSION_ARGV, versionIn } from './recorded-tools.ts'

const bounds = {
  timeoutMs: 120_000,
  memoryBytes: 512 * 1024 ** 2,
  pids: 32,
  outputBytes: 64 * 1024,
} as const

/**
 * Returns the first line of a program's version output, from the image's record. Without a record, runs the program in
 * a sandbox with its own user, concurrently with other programs of the build, but one at a time. Failure `internal`.
 */
export async function toolOf(phase: Phase, name: ToolName): Promise<Tool> {
  const recorded = recordedTool(phase.tools.records, name)
  if (recorded !== null) return recorded
  const argv = VERSION_ARGV[name]
  const { code, text } = await outputOf(phase, argv)
  const version = versionIn(text)
  refuseUnless(code === 0 && version !== '', 'internal', () => `${argv.join(' ')}: exit code ${code}`)
  return { version, sha256: await sha256Of(fs.realpathSync(phase.tools.fileOf(name))) }
}

/** Throws `source_invalid` if the source pins another compiler, unless the request waives that. */
export function checkPinned({ job, order }: Phase, pinned: PinnedCompiler | null, { version }: Tool): void {
  if (pinned === null || isChannelOf(pinned.channel, version)) return
  const found = `${pinned.path} pins ${JSON.stringify(pinned.channel)}, and this builder has ${version}`
  refuseUnless(
    order.waivers.includes('any_toolchain'),
    'source_invalid',
    () => `${found}; pin a channel of that version, or accept it with any_toolchain (--any-toolchain)`,
  )
  job.say('detect', `accepted: ${found}`)
}

/**
 * Returns the standard output of a program of the builder, run without the source as in `toolOf`. Two of these must not
 * run at the same time: each ends the other programs of its user.
 */
export async function outputOf(phase: Phase, argv: readonly string[]): Promise<{ code: number; text: string }> {
  const output: Uint8Array[] = []
  // pnpm does not start without a /tmp.
  const tmp = fs.mkdtempSync(`${phase.workDir}/version-`)
  fs.chownSync(tmp, uids.version, uids.version)
  const code = await runProgram(phase.site, {
    name: 'version',
    // Growth of the disk is measured as a whole, and other programs may run at the same time.
    bounds: { ...bounds, diskBytes: phase.order.limits.diskBytes },
    signal: phase.job.signal,
    onStdout: chunk => output.push(chunk.slice()),
    onStderr: () => {},
    plan: {
      uid: uids.version,
      network: false,
      nestedNamespaces: false,
      cwd: '/',
      argv,
      binds: [...phase.tools.binds, { from: tmp, to: places.tmp, writable: true }],
      etcDir: `${phase.workDir}/etc-version`,
      env: { ...plainEnvironment, PATH: phase.tools.path },
    },
  })
  return { code, text: Buffer.concat(output).toString('utf8') }
}
