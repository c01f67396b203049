import { expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { succeed } from '../../../scripts/rigs/guest/root.ts'
import { hashTree } from '../../../src/linux/source/git-tree.ts'

const bounds = { bytesMax: 1024 ** 2, entriesMax: 100, timeSeconds: 315_532_800 }

async function inDir<T>(use: (dir: string) => Promise<T>): Promise<T> {
  const dir = fs.mkdtempSync('/tmp/strongroom-tree-')
  try {
    return await use(dir)
  } finally {
    fs.rmSync(dir, { recursive: true, force: true })
  }
}

/** git's own answer, in a repository outside of the tree. */
function gitTree(tree: string, repository: string, format: 'sha1' | 'sha256'): string {
  const git = (...argv: string[]) => succeed(['git', `--git-dir=${repository}`, `--work-tree=${tree}`, ...argv]).trim()
  succeed(['git', 'init', '--quiet', '--bare', `--object-format=${format}`, repository])
  git('-c', 'core.autocrlf=false', 'add', '--all', '--force', '.')
  return git('write-tree')
}

// Goal: the id is git's for these files, in both formats, with names in git's order, modes, links and odd bytes; and
// the tree is left as a clone would leave it: no empty directories, one time.
test('the tree id is git’s own', async () => {
  await inDir(async dir => {
    const tree = join(dir, 'tree')
    // Sorted as bytes, with a slash after directories: a-b, a.b, a/, a0.
    for (const name of ['a/x', 'a-b', 'a.b', 'a0', 'ü/ö', 'deep/er/file', 'empty-file']) {
      fs.mkdirSync(join(tree, name, '..'), { recursive: true })
      fs.writeFileSync(join(tree, name), name === 'empty-file' ? '' : `${name}\r\n`)
    }
    fs.mkdirSync(join(tree, 'empty/nested'), { recursive: true })
    fs.writeFileSync(join(tree, 'run'), '#!/bin/sh\n', { mode: 0o755 })
    fs.writeFileSync(join(tree, 'big'), new Uint8Array(300_000).fill(7))
    fs.symlinkSync('a/x', join(tree, 'link'))
    fs.symlinkSync('../nowhere', join(tree, 'deep/dangling'))
    const found = await hashTree(tree, bounds)
    expect(found.sha1).toBe(gitTree(tree, join(dir, 'one'), 'sha1'))
    expect(found.sha256).toBe(gitTree(tree, join(dir, 'two'), 'sha256'))
    expect(found.fileCount).toBe(11)
    expect(fs.existsSync(join(tree, 'empty'))).toBe(false)
    expect(fs.statSync(join(tree, 'a/x')).mtimeMs).toBe(315_532_800_000)
  })
})

// Goal: what git cannot hold, what leads out, and what is beyond the bounds is refused by its name.
test('trees that are refused', async () => {
  const cases: Record<string, [(dir: string) => void, RegExp]> = {
    'a FIFO': [dir => void succeed(['mkfifo', join(dir, 'f')]), /"f": neither file/],
    'a link that leads out': [dir => fs.symlinkSync('../x', join(dir, 'l')), /"l": a link that leads out/],
    'an absolute link': [dir => fs.symlinkSync('/etc', join(dir, 'l')), /absolute path/],
    'a link that leads out by another': [
      dir => {
        fs.mkdirSync(join(dir, 'd/e'), { recursive: true })
        fs.symlinkSync('../..', join(dir, 'd/e/up'))
        fs.symlinkSync('d/e/up/..', join(dir, 'l'))
      },
      /"l": a link that leads out/,
    ],
    'a name that is not UTF-8': [
      dir => fs.writeFileSync(Buffer.concat([Buffer.from(`${dir}/`), Buffer.from([0xff])]), 'x'),
      /not UTF-8/,
    ],
    'a control character': [dir => fs.writeFileSync(join(dir, 'a\nb'), 'x'), /control character/],
    'too many bytes': [
      dir => fs.writeFileSync(join(dir, 'a'), new Uint8Array(2 * 1024 ** 2)),
      /more than 1048576 bytes/,
    ],
    'too many files': [
      dir => {
        for (let at = 0; at < 101; at += 1) fs.writeFileSync(join(dir, `f${at}`), '')
      },
      /more than 100 files/,
    ],
    'no file at all': [dir => fs.mkdirSync(join(dir, 'd')), /no file/],
  }
  for (const [what, [make, why]] of Object.entries(cases)) {
    await inDir(async dir => {
      fs.mkdirSync(join(dir, 'tree'))
      make(join(dir, 'tree'))
      const message = await hashTree(join(dir, 'tree'), bounds).then(
        () => `${what}: taken`,
        (error: Error) => error.message,
      )
      expect(message).toMatch(why)
    })
  }
})
