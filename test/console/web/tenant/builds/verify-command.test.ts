// Goal: the command for a build expects what was submitted, by a commit, a checkout or the archive; a branch, which the
// host may choose anew, is no expectation.

import { expect, test } from 'bun:test'
import type { KnownBuild } from '../../../../../src/console/web/tenant/builds/known-build.ts'
import { requestNote, verifyBuildCommand } from '../../../../../src/console/web/tenant/builds/verify-command.ts'
import { commandFault } from '../../../../rigs/console/command-line.ts'
import { buildId, buildRecord } from '../../../../rigs/console/tenant-services.ts'

const commit = 'AB'.repeat(20)
const record = buildRecord(1)
const url = 'https://git.example/a.git'

const cargo = { package: null, bin: null, features: [], noDefaultFeatures: false, profile: null, target: null }

function submitted(changes: Partial<KnownBuild>): KnownBuild {
  const source = { kind: 'git', url, ref: commit } as const
  return {
    id: buildId,
    nonce: '0011',
    source,
    projectDir: null,
    toolchain: null,
    options: null,
    reproduce: false,
    atMs: 0,
    ...changes,
  }
}

// Goal: the command line takes each command, which expects what the tab sent.
test.each([
  [submitted({}), `--nonce 0011 --commit ${commit.toLowerCase()} --repository ${url} --ref ${commit}`],
  [submitted({ source: { kind: 'git', url, ref: 'main' } }), '--nonce 0011 --source . --ref main'],
  [submitted({ source: { kind: 'git', url, ref: null } }), '--nonce 0011 --source .'],
  [submitted({ source: { kind: 'archive', name: "it's.zip" } }), String.raw`--nonce 0011 --source 'it'\''s.zip'`],
  [
    submitted({ projectDir: 'a b', toolchain: 'nix', reproduce: true, source: { kind: 'archive', name: 'a.tar' } }),
    "--nonce 0011 --source a.tar --project-dir 'a b' --toolchain nix --reproduce",
  ],
  [
    submitted({ options: { cargo: { ...cargo, package: 'cli', features: ['a', 'b'], noDefaultFeatures: true } } }),
    `--nonce 0011 --commit ${commit.toLowerCase()} --repository ${url} --ref ${commit} --package cli --features a --features b --no-default-features`,
  ],
  [null, '--nonce 00112233445566778899aabbccddeeff --source . --reproduce'],
] as const)('the command of %o', (known, options) => {
  const command = verifyBuildCommand('4f9d2c1e.tar.gz', known, record)
  expect(command).toBe(`strongroom verify build 4f9d2c1e.tar.gz ${options} --policy build-policy.json`)
  expect(commandFault(command)).toBeNull()
})

test('goal: the page says whose words nonce and source are, and where the command is to run', () => {
  const tab = 'The command has the nonce and the source that this tab sent. Compare both with yours.'
  expect(requestNote(submitted({}), record)).toBe(tab)
  expect(requestNote(submitted({ source: { kind: 'git', url, ref: 'main' } }), record)).toBe(
    `${tab} Run it in a checkout of the commit that you expect.`,
  )
  expect(requestNote(submitted({ source: { kind: 'archive', name: 'a.tar' } }), record)).toBe(
    `${tab} Run it in the directory of the archive that you sent.`,
  )
  expect(requestNote(null, record)).toBe(
    'This tab did not submit the build, so the command has the nonce and the source of this host’s record. Compare both with yours. Run it in a checkout of the commit that you expect.',
  )
})
