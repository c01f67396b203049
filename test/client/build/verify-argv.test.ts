// Goal: the command that verifies a submitted build again asks what the submission asked, without what only sends it.

import { expect, test } from 'bun:test'
import { verifyBuildArgv } from '../../../src/client/build/verify-argv.ts'

const archive = 'out/job.unverified.tar.gz'
const tree = { kind: 'tree', sha1: '1'.repeat(40), sha256: '2'.repeat(64) } as const

test('goal: of a directory the source is named, and options of the transfer are left out in both forms', () => {
  const given = ['build', 'submit', '.', '--api', 'https://b.example', '--key-file=k', '--output', '.', '--own-image']
  const asked = { source: tree }
  expect(verifyBuildArgv([...given, '--include', '.'], { source: '.', asked, nonce: 'ab', archive })).toEqual([
    ...['verify', 'build', archive, '--own-image', '--include', '.', '--nonce', 'ab', '--source', '.'],
  ])
})

test('goal: a nonce and a commit that were given are not repeated; a ref that is a commit is named as one', () => {
  const url = 'https://git.example/t.git'
  const commit = 'c'.repeat(40)
  const asked = { source: { kind: 'commit', commit, url, ref: null } } as const
  const given = ['build', 'submit', url, '--nonce', 'cd', '--commit', commit]
  expect(verifyBuildArgv(given, { source: url, asked, nonce: 'cd', archive })).toEqual([
    ...['verify', 'build', archive, '--nonce', 'cd', '--commit', commit, '--repository', url],
  ])
  const byRef = ['build', 'submit', url, '--ref', commit]
  expect(verifyBuildArgv(byRef, { source: url, asked, nonce: 'cd', archive })).toEqual([
    ...['verify', 'build', archive, '--ref', commit, '--nonce', 'cd', '--commit', commit, '--repository', url],
  ])
})

test('goal: any source needs no name', () => {
  const given = ['build', 'submit', 'a.tar.gz', '--any-source']
  expect(verifyBuildArgv(given, { source: 'a.tar.gz', asked: { source: 'any' }, nonce: 'ab', archive })).toEqual([
    ...['verify', 'build', archive, '--any-source', '--nonce', 'ab'],
  ])
})
