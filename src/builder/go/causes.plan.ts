// Explains failures of go to the people who sent the source: cause and remedy. Pure.

import { type BuildFailure, type Cause, causedFailure } from '../failure.ts'

/** `misses`: go found no module for an import, for example because a workspace names it. */
type GoCause = Cause & { readonly misses?: true }

/** The first match applies. Texts of Go 1.19 to 1.24. */
const CAUSES: readonly GoCause[] = [
  {
    pattern: /^(?:go: )?(?:\S+: )*verifying \S+: checksum mismatch$|^SECURITY ERROR$/m,
    errorType: 'checksum_mismatch',
    message:
      'the proxy serves a module whose hash differs from the one in go.sum; restore go.sum, or set go_proxy to another proxy',
  },
  {
    pattern: /missing go\.sum entry/,
    errorType: 'lock_missing',
    message: 'go.sum lacks a module that the project needs; run `go mod tidy`, and send go.sum with the source',
  },
  {
    pattern: /import lookup disabled by -mod=vendor|cannot find package "\." in:\s+\S*\/vendor\//,
    errorType: 'source_invalid',
    message: 'vendor/ lacks a package that the project needs; run `go mod vendor`, and send vendor/ with the source',
    misses: true,
  },
  {
    pattern:
      /updates to go\.(?:mod|sum) needed|go\.mod file indicates|missing module|no required module provides|import lookup disabled by -mod=readonly|does not contain package/,
    errorType: 'source_invalid',
    message: 'go.mod does not match the project; run `go mod tidy`, and send go.mod and go.sum with the source',
    misses: true,
  },
  {
    pattern: /inconsistent vendoring/,
    errorType: 'source_invalid',
    message: 'vendor/modules.txt does not match go.mod; run `go mod vendor`, and send vendor/ with the source',
  },
  {
    pattern: /go\.mod:\d+: unknown directive: (?:<{7}|={7}|>{7})/,
    errorType: 'source_invalid',
    message: 'go.mod contains merge conflict markers; resolve them and run `go mod tidy`',
  },
  {
    pattern: /requires go >= /,
    errorType: 'source_invalid',
    message:
      "the project needs a newer Go than this builder's; lower the `go` line of go.mod, or require an older version of the module that needs it",
  },
  {
    pattern: /invalid go version|unknown directive|errors parsing (?:\S*\/)?go\.mod/,
    errorType: 'source_invalid',
    message:
      "go.mod has an error, or is for a newer Go than this builder's; run `go mod tidy` with the builder's version",
  },
  {
    pattern: /use of internal package \S+ not allowed/,
    errorType: 'source_invalid',
    message: 'the project imports an internal package of another module, which Go refuses; import a public one',
  },
  {
    pattern: /pattern \S+: no matching files found/,
    errorType: 'source_invalid',
    message: 'a file that `//go:embed` names is not in the source; generate it, and send it with the source',
  },
  {
    pattern: /fatal error: \S+: No such file or directory/,
    errorType: 'build_failed',
    message: 'C code includes a header that the builder lacks; add the header to the source',
  },
  {
    pattern: /cannot find -l\S+|No package '[^']+' found|was not found in the pkg-config search path/,
    errorType: 'build_failed',
    message: 'C code needs a library that the builder lacks; add its code to the source',
  },
  {
    pattern: /reading https:\/\/\S+: (?:404|410) /,
    errorType: 'source_unreachable',
    message:
      'the module proxy of the request lacks a module; set go_proxy to another proxy, or run `go mod vendor` and send vendor/ with the source',
    misses: true,
  },
  {
    pattern: /module lookup disabled by GOPROXY=off|dial tcp|Forbidden|Get "https?:|reading https:\/\/|GOVCS disallows/,
    errorType: 'source_unreachable',
    message:
      'a module cannot be fetched; run `go mod vendor` and send vendor/ with the source, or ask the operator which hosts are allowed',
    misses: true,
  },
]

const workspaceWords =
  'builds ignore go.work, so name the modules of the workspace with `replace` in go.mod; otherwise: '

/**
 * Returns the failure. `what`: how the program ended. `output`: the end of its output. `hasWorkspace`: the source has a
 * go.work at or above the project.
 */
export function goFailure(what: string, output: string, hasWorkspace: boolean): BuildFailure {
  const causes = CAUSES.map(({ misses = false, message, ...cause }) => ({
    ...cause,
    message: hasWorkspace && misses ? `${workspaceWords}${message}` : message,
  }))
  return causedFailure(causes, what, output)
}

/**
 * Returns the failure of `go build`, which has no network. Its output quotes the source, so causes of fetches do not
 * apply.
 */
export function goBuildFailure(what: string, output: string): BuildFailure {
  const causes = CAUSES.filter(({ misses = false, errorType }) => !misses && errorType !== 'checksum_mismatch')
  return causedFailure(causes, what, output)
}
