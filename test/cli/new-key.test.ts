// Goal: `key new` makes a key without a daemon, a configuration or a network; the file is the
// user's alone, and no file that is there already is touched.

import { afterAll, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { existsSync, lstatSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expectUsageError, runHere } from '../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-new-key-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const KINDS = [
  { words: ['key', 'new'], form: /^ca_[a-z0-9]{8}_[a-z0-9]{18}$/ },
  { words: ['gateway', 'key', 'new'], form: /^gw_[a-z0-9]{8}_[a-z0-9]{32}$/ },
]

/** The definition, a second time. */
function lineOf(key: string): string {
  const [tag = '', prefix = '', secret = ''] = key.split('_')
  return `${tag}_${prefix}_sha256_${createHash('sha256').update(secret).digest('hex')}`
}

for (const { words, form } of KINDS) {
  const command = words.join(' ')

  test(`goal: ${command} prints a key and its line, other ones each time`, async () => {
    const first = await runHere([...words, '--json'])
    const { key, prefix, registration } = JSON.parse(first.stdout)
    expect([first.code, first.stderr, key]).toEqual([0, '', expect.stringMatching(form)])
    expect([prefix, registration]).toEqual([key.split('_')[1], lineOf(key)])
    const { code, stdout, stderr } = await runHere(words)
    const [, other = '', line = ''] = /^key: +(\S+)\nregistration: +(\S+)\n$/.exec(stdout) ?? []
    expect([code, line]).toEqual([0, lineOf(other)])
    expect(other).not.toBe(key)
    expect(stderr).toContain('Give the operator the registration line only')
    expect(stderr).not.toContain(other.split('_')[2] ?? '?')
  })

  test(`goal: ${command} --key-file writes the key for its owner alone, and prints the line alone`, async () => {
    const path = join(dir, `${words.length}.key`)
    const { code, stdout, stderr } = await runHere([...words, '--key-file', path])
    const key = readFileSync(path, 'utf8')
    expect([code, key.endsWith('\n'), stdout]).toEqual([0, true, `${lineOf(key.trim())}\n`])
    expect(key.trim()).toMatch(form)
    expect(lstatSync(path).mode & 0o777).toBe(0o600)
    expect(stderr).not.toContain(key.trim().split('_')[2] ?? '?')
  })

  test(`goal: ${command} replaces no file, follows no link, and says what is wrong with the place`, async () => {
    const taken = join(dir, `${words.length}.taken`)
    const link = join(dir, `${words.length}.link`)
    writeFileSync(taken, 'precious')
    symlinkSync(join(dir, `${words.length}.target`), link)
    await expectUsageError([...words, '--key-file', taken], 'it exists')
    await expectUsageError([...words, '--key-file', link], 'it exists')
    await expectUsageError([...words, '--key-file', join(dir, 'nowhere', 'x')], 'there is no such directory')
    expect([readFileSync(taken, 'utf8'), existsSync(join(dir, `${words.length}.target`))]).toEqual(['precious', false])
  })
}
