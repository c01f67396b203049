// Explains failures of npm and pnpm to the people who sent the source: cause and remedy. Pure.

import type { BuildErrorType } from '../../contract/http/build.ts'
import { BuildFailure } from '../failure.ts'

type Cause = { readonly pattern: RegExp; readonly errorType: BuildErrorType; readonly message: string }

/** The first match applies. */
const CAUSES: readonly Cause[] = [
  {
    pattern: /EINTEGRITY|ERR_PNPM_TARBALL_INTEGRITY/,
    errorType: 'checksum_mismatch',
    message: 'a package file differs from its hash in the lock',
  },
  {
    pattern: /ERR_PNPM_LOCKFILE_CONFIG_MISMATCH|ERR_PNPM_OUTDATED_LOCKFILE|ERR_PNPM_CATALOG/,
    errorType: 'source_invalid',
    message: 'pnpm-lock.yaml does not match package.json; run `pnpm install --lockfile-only`, and send both',
  },
  {
    pattern: /EBADPLATFORM|ERR_PNPM_UNSUPPORTED_PLATFORM/,
    errorType: 'source_invalid',
    message: 'a required package does not support Linux on x86-64',
  },
  {
    pattern: /ERESOLVE/,
    errorType: 'source_invalid',
    message:
      'the peer dependencies of package-lock.json contradict each other; lock again, or set legacy-peer-deps=true in .npmrc',
  },
  {
    // npm requests a package that the lock lacks.
    pattern: /in sync|EUSAGE|ENOTCACHED|ETARGET/,
    errorType: 'source_invalid',
    message: 'package-lock.json does not match package.json; run `npm install --package-lock-only`, and send both',
  },
]

/** Returns the failure. `what`: how the program ended. `output`: the end of its output. */
export function installFailure(what: string, output: string): BuildFailure {
  const cause = CAUSES.find(({ pattern }) => pattern.test(output))
  return cause === undefined
    ? new BuildFailure('build_failed', `${what}: ${output}`)
    : new BuildFailure(cause.errorType, `${cause.message}: ${output}`)
}

/** Returns the failure of a build without artifacts. `manager`: npm or pnpm. `links`: number of links in dist/. */
export function noArtifacts(manager: string, { hasDist, links }: { hasDist: boolean; links: number }): BuildFailure {
  const advice = 'let the build script write files to dist/'
  const packed = hasDist ? `dist/ has no file; ${advice}` : `${manager} pack wrote no file; ${advice}`
  const why = hasDist && links > 0 ? 'dist/ contains only links; copy their targets instead (cp -L)' : packed
  return new BuildFailure('no_artifacts', `the build produced no artifact: ${why}`)
}
