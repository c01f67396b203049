// Versions that the build's programs report, and the digests of their files. Effects: runs them, reads them.

import * as fs from 'node:fs'
import type { Tool } from '../attest/provenance/record.ts'
import { sha256Of } from './cargo/cargo.ts'
import { runProgram } from './confined/program.ts'
import { refuseUnless } from './failure.ts'
import { type Phase, plainEnvironment, uids } from './phase.ts'

const bounds = {
  timeoutMs: 120_000,
  memoryBytes: 512 * 1024 ** 2,
  pids: 32,
  diskBytes: 16 * 1024 ** 2,
  outputBytes: 64 * 1024,
} as const

/** The first line of `NAME --version`, run in the build's sandbox. Failure `internal`. */
export async function toolOf(phase: Phase, name: string): Promise<Tool> {
  const output: Uint8Array[] = []
  const code = await runProgram(phase.site, {
    name: 'version',
    bounds,
    signal: phase.job.signal,
    onStdout: chunk => output.push(chunk.slice()),
    onStderr: () => {},
    plan: {
      uid: uids.build,
      network: false,
      nestedNamespaces: false,
      cwd: '/',
      argv: [name, '--version'],
      binds: phase.tools.binds,
      etcDir: `${phase.workDir}/etc`,
      env: { ...plainEnvironment, PATH: phase.tools.path },
    },
  })
  const version = Buffer.concat(output).toString('utf8').split('\n')[0]?.trim() ?? ''
  refuseUnless(code === 0 && version !== '', 'internal', () => `${name} --version: exit code ${code}`)
  return { version, sha256: await sha256Of(fs.realpathSync(phase.tools.fileOf(name))) }
}
