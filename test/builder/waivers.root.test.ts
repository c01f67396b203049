import { describe, expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import { archiveOf, plainProject, type SourceFiles } from '../../scripts/rigs/build/sources.ts'
import { type BuildEnd, cgroup2Root, findRust, startBuildVm } from '../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import type { Waiver } from '../../src/contract/http/build.ts'

const isRoot = userInfo().uid === 0
const skipped = skipUnless(isRoot && findRust() !== null && cgroup2Root() !== null, 'needs root, a cargo and cgroup2')

async function built(files: SourceFiles, waivers: Waiver[] = []): Promise<BuildEnd> {
  await using vm = await startBuildVm()
  return await vm.build({ archive: archiveOf(files), waivers })
}

const lfs = { 'data.bin': `version https://git-lfs.github.com/spec/v1\noid sha256:${'ab'.repeat(32)}\nsize 12345\n` }
const old = { 'rust-toolchain.toml': '[toolchain]\nchannel = "1.31.0"\n' }

describe.skipIf(skipped)('waivers', () => {
  // Goal: the VM itself fails on Git LFS pointers and on another compiler than the source pins, unless the request
  // waives that finding; a waiver of the other one does not help.
  test('of what a source has', async () => {
    const cases: [SourceFiles, Waiver[], RegExp][] = [
      [lfs, [], /Git LFS pointers without their content, 1: "data.bin"; .*git lfs pull/],
      [lfs, ['any_toolchain'], /accept them with allow_lfs_pointers \(--allow-lfs-pointers\)/],
      [old, ['allow_lfs_pointers'], /rust-toolchain.toml pins "1.31.0", and .* rustc .*with any_toolchain/],
    ]
    for (const [files, waivers, why] of cases) {
      const { result } = await built({ ...plainProject, ...files }, waivers)
      const error = expect.stringMatching(why)
      expect([waivers, result]).toMatchObject([waivers, { status: 'failed', errorType: 'source_invalid', error }])
    }
    const waived = await built({ ...plainProject, ...lfs, ...old }, ['allow_lfs_pointers', 'any_toolchain'])
    expect(waived.result).toMatchObject({ status: 'ok' })
    expect(waived.lines.filter(({ msg }) => msg.startsWith('accepted: '))).toHaveLength(2)
  }, 600_000)
})
