// Failures of go for the people who sent the source: the cause and the remedy. Pure.

import { type BuildFailure, type Cause, causedFailure } from '../failure.ts'

/** The first that fits counts. */
const CAUSES: readonly Cause[] = [
  {
    pattern: /checksum mismatch|SECURITY ERROR/,
    errorType: 'checksum_mismatch',
    message: 'go.sum has another hash of a module than the proxy has',
  },
  {
    pattern: /missing go\.sum entry/,
    errorType: 'lock_missing',
    message: 'go.sum lacks a module that the project needs; run `go mod tidy`, and send go.sum with the source',
  },
  {
    pattern: /updates to go\.(?:mod|sum) needed|go\.mod file indicates|missing module|no required module provides/,
    errorType: 'source_invalid',
    message: 'go.mod does not match the project; run `go mod tidy`, and send go.mod and go.sum with the source',
  },
  {
    pattern: /inconsistent vendoring/,
    errorType: 'source_invalid',
    message: 'vendor/modules.txt does not match go.mod; run `go mod vendor`, and send vendor/ with the source',
  },
  {
    pattern: /requires go >= |invalid go version|unknown directive|errors parsing (?:\S*\/)?go\.mod/,
    errorType: 'source_invalid',
    message: "go.mod is not for this builder's version of Go",
  },
  {
    pattern: /module lookup disabled by GOPROXY=off|dial tcp|Forbidden|Get "https?:|reading https:\/\/|GOVCS disallows/,
    errorType: 'source_unreachable',
    message:
      'a module cannot be fetched; run `go mod vendor` and send vendor/ with the source, or ask the operator which hosts are allowed',
  },
]

/** `what`: how the program ended. `output`: the end of what it printed. */
export function goFailure(what: string, output: string): BuildFailure {
  return causedFailure(CAUSES, what, output)
}
