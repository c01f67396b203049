import { describe, expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import { gzipSync } from 'node:zlib'
import { tarOf, zipOf } from '../../../scripts/rigs/archive-bytes.ts'
import { archiveOf, plainProject } from '../../../scripts/rigs/build/sources.ts'
import { type BuildEnd, cgroup2Root, findRust, startBuildVm } from '../../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { filesOf } from '../../rigs/build/built.ts'

const isRoot = userInfo().uid === 0
const skipped = skipUnless(isRoot && findRust() !== null && cgroup2Root() !== null, 'needs root, a cargo and cgroup2')
const timeoutMs = 600_000

/** The project below one directory, as Finder and `tar` write it. */
const below = Object.entries(plainProject).map(([name, content]) => ({ name: `p/${name}`, content }))

async function built(archive: Uint8Array): Promise<BuildEnd> {
  await using vm = await startBuildVm()
  return await vm.build({ archive })
}

const treeOf = ({ lines }: BuildEnd) => lines.map(({ msg }) => /^source tree (\S+),/.exec(msg)?.[1]).find(Boolean)

describe.skipIf(skipped)('archives of macOS', () => {
  // Goal: an archive that a Mac makes of a project is built as the project alone. The log names what is left out, and
  // the tree id covers the other files.
  test(
    'a zip of Finder, and a tar with .DS_Store beside the project',
    async () => {
      const plain = await built(archiveOf(plainProject, 'p'))
      const cases = [
        [
          zipOf([...below, { name: '__MACOSX/p/._Cargo.toml', content: 'x' }]),
          'left out: __MACOSX with 1 entries, which Finder adds to a zip; the tree id covers the other files',
        ],
        [
          gzipSync(tarOf([{ name: '.DS_Store', content: 'x' }, ...below, { name: 'p/src/._main.rs', content: 'x' }])),
          'left out: files that macOS adds: ".DS_Store", "p/src/._main.rs"; the tree id covers the other files',
        ],
      ] as const
      for (const [archive, leftOut] of cases) {
        const end = await built(archive)
        const messages = end.lines.map(({ msg }) => msg)
        expect(end.result).toMatchObject({ status: 'ok' })
        expect(messages).toContain(leftOut)
        expect(messages).toContain("the one top-level directory p is taken for the source's root")
        expect(treeOf(end)).toBe(treeOf(plain) ?? 'no tree')
        expect([...filesOf(end).keys()].filter(path => path.startsWith('artifacts/'))).toEqual(['artifacts/hello'])
      }
    },
    timeoutMs,
  )
})
