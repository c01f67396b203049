// Goal: an order replaces the recipients of snapshots by exactly what age takes; a wrong one changes nothing.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createRecipientsHandler } from '../../../src/guest/orders/recipients.ts'

let directory = ''
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'srt-recipients-'))
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

const age = 'age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kudcq8ydsvwxjqz'.padEnd(62, 'q').slice(0, 62)
const ssh = `ssh-ed25519 ${'A'.repeat(68)}`
const file = () => join(directory, 'recipients')
const order = (body: unknown) => {
  const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  return createRecipientsHandler({ snapshotRecipients: file() }, owner)(body, { counter: 1 })
}

test('goal: recipients stand one a line in a file that the image reads; none empties it', async () => {
  expect(await order({ recipients: [age, ssh] })).toEqual({ ok: true, result: { recipients: [age, ssh] } })
  expect(readFileSync(file(), 'utf8')).toBe(`${age}\n${ssh}\n`)
  expect(statSync(file()).mode & 0o777).toBe(0o644)
  expect((await order({ recipients: [] })).ok).toBeTrue()
  expect(readFileSync(file(), 'utf8')).toBe('')
})

test('goal: another key type, an option, a comment, a line end, a plugin and too many are refused', async () => {
  await order({ recipients: [ssh] })
  for (const wrong of [
    `ecdsa-sha2-nistp256 ${'A'.repeat(68)}`,
    `command="id" ${ssh}`,
    `${ssh} owner@home`,
    `${ssh}\n${ssh}`,
    'age1yubikey1qwerty',
    '--recipient=x',
    '',
  ]) {
    expect([wrong, (await order({ recipients: [wrong] })).ok]).toEqual([wrong, false])
  }
  for (const body of [
    { recipients: Array(17).fill(ssh) },
    { recipients: ssh },
    {},
    { recipients: [ssh], more: 1 },
    null,
  ]) {
    expect((await order(body)).ok).toBeFalse()
  }
  expect(readFileSync(file(), 'utf8')).toBe(`${ssh}\n`)
})
