// Goal: a compiler counts as the pinned one only where the toolchain's own rules say so.

import { expect, test } from 'bun:test'
import { isChannelOf, rustComponentPrefix, rustManifestName } from '../../../src/attest/provenance/compiler.ts'

const stable = 'rustc 1.96.0 (4a4ef493e 2026-03-02)'
const nightly = 'rustc 1.98.0-nightly (abcdef012 2026-06-01)'
const beta = 'rustc 1.97.0-beta.3 (abcdef012 2026-06-01)'
const go = (version: string) => `go version ${version} linux/amd64`

// Goal: each channel takes its own versions alone.
test.each([
  ['stable', stable, true],
  ['stable', nightly, false],
  ['stable', 'cargo 1.96.0', false],
  ['stable-x86_64-unknown-linux-gnu', stable, true],
  ['beta', beta, true],
  ['beta', stable, false],
  ['nightly', nightly, true],
  ['nightly', beta, false],
  ['nightly-2026-06-01', nightly, false],
  ['1.96.0', stable, true],
  ['1.96', stable, true],
  ['1.96.0-x86_64-unknown-linux-musl', stable, true],
  ['1.96.1', stable, false],
  ['1.9', stable, false],
  ['1', stable, false],
  ['1.98.0', nightly, false],
  ['', stable, false],
  ['stable', '', false],
  ['go1.24.1', go('go1.24.1'), true],
  ['go1.24.1', go('go1.24.2'), true],
  ['go1.24.1', go('go1.25'), true],
  ['go1.24.1', go('go2.0'), true],
  ['go1.24.1', go('go1.24.0'), false],
  ['go1.24.1', go('go1.24'), false],
  ['go1.24.1', go('go1.23.9'), false],
  ['go2.1', go('go1.24.9'), false],
  ['go1.24', go('go1.24.0'), true],
  ['go1.24.1', go('go1.24.1+auto'), true],
  ['go1.24.1', go('go1.24rc1'), false],
  ['1.24.1', go('go1.24.1'), false],
  ['go1', go('go1.24.1'), false],
  ['go1.24.1', 'go version devel', false],
])('%s and %s: %p', (channel, version, expected) => {
  expect(isChannelOf(channel, version)).toBe(expected)
})

test('goal: the names of a fetched toolchain in the provenance', () => {
  expect([rustManifestName, rustComponentPrefix]).toEqual(['rust-channel-manifest', 'rust-component '])
})
