// Goal: a commit is named only where the sources are that commit's, and nothing is built with another Bun than the
// locked one.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { appendFileSync, cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { provenanceOf } from '../../../scripts/build/provenance.ts'
import { root } from '../../meta/tree.ts'

let repo: string
beforeEach(() => {
  repo = realpathSync(mkdtempSync(join(tmpdir(), 'strongroom-provenance-')))
  for (const dir of ['src', 'scripts/lib', 'scripts/build']) mkdirSync(join(repo, dir), { recursive: true })
  for (const name of ['src/a.ts', 'src/b.ts', 'scripts/build/c.ts', 'README.md', 'bun.lock', 'package.json']) {
    writeFileSync(join(repo, name), name)
  }
  cpSync(join(root, 'scripts/lib/bun.lock.json'), join(repo, 'scripts/lib/bun.lock.json'))
})
afterEach(() => rmSync(repo, { recursive: true, force: true }))

function git(...argv: string[]): string {
  const identity = ['-c', 'user.name=t', '-c', 'user.email=t@example.test', '-c', 'init.defaultBranch=main']
  const { exitCode, stdout, stderr } = Bun.spawnSync(['git', '-C', repo, ...identity, ...argv])
  if (exitCode !== 0) throw new Error(stderr.toString())
  return stdout.toString().trim()
}

const read = () => provenanceOf(['src'], repo)

test('goal: the commit is told when no source differs from it, and only then', async () => {
  expect((await read()).commit).toBeNull()
  git('init', '--quiet')
  expect((await read()).commit).toBeNull()
  git('add', '.')
  git('commit', '--quiet', '--message=first')
  const clean = await read()
  expect(clean.commit).toBe(git('rev-parse', 'HEAD'))
  // A file that is no source may differ.
  appendFileSync(join(repo, 'README.md'), 'more')
  expect(await read()).toEqual(clean)
  writeFileSync(join(repo, '.gitignore'), 'src/ignored.ts\n')
  for (const name of ['src/b.ts', 'src/new.ts', 'src/ignored.ts', 'bun.lock']) {
    git('stash', 'push', '--all', '--quiet')
    appendFileSync(join(repo, name), 'more')
    writeFileSync(join(repo, '.gitignore'), 'src/ignored.ts\n')
    const changed = await read()
    expect([name, changed.commit]).toEqual([name, null])
    expect(changed.sourceSha256).not.toBe(clean.sourceSha256)
  }
})

test('goal: a copy inside another checkout does not take that checkout’s commit for its own', async () => {
  git('init', '--quiet')
  git('add', '.')
  git('commit', '--quiet', '--message=first')
  const inner = join(repo, 'inner')
  for (const name of ['src', 'scripts', 'bun.lock', 'package.json']) {
    cpSync(join(repo, name), join(inner, name), { recursive: true })
  }
  git('add', '.')
  git('commit', '--quiet', '--message=second')
  const [outside, inside] = [await read(), await provenanceOf(['src'], inner)]
  expect(inside).toEqual({ ...outside, commit: null })
})

test('goal: another Bun than the locked one builds nothing', async () => {
  writeFileSync(join(repo, 'scripts/lib/bun.lock.json'), JSON.stringify({ executableSha256: '0'.repeat(64) }))
  await expect(read()).rejects.toThrow(/is not the Bun of scripts\/lib\/bun\.lock\.json: run scripts\/setup/)
})
