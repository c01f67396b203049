import { expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { makeSandbox } from '../../scripts/rigs/guest/root.ts'
import { keepBounded, openProgramLog } from '../../src/guest/daemon.ts'
import { logBytesMax, openLogFile } from '../../src/guest/log-file.ts'

// Goal: a flood of lines keeps the newest, in two bounded files that nobody but root reads.
test('a log is bounded', async () => {
  await using sandbox = await makeSandbox()
  const { logDir } = sandbox.paths
  const log = openLogFile(logDir, 'agent', sandbox.owner)
  const line = 'x'.repeat(1_000)
  for (let at = 0; at < 1_000; at += 1) log.write(`${at} ${line}`)
  const sizes = fs.readdirSync(logDir).map(name => fs.statSync(`${logDir}/${name}`).size)
  expect(sizes).toHaveLength(2)
  expect(Math.max(...sizes)).toBeLessThanOrEqual(logBytesMax)
  expect(fs.readFileSync(`${logDir}/agent.log`, 'utf8').trimEnd().split('\n').at(-1)).toBe(`999 ${line}`)
  expect(fs.statSync(logDir).mode & 0o777).toBe(0o700)
  expect(fs.statSync(`${logDir}/agent.log`).mode & 0o777).toBe(0o600)
})

// Goal: a successor goes on where its predecessor ended, and no obstacle throws.
test('a log is continued', async () => {
  await using sandbox = await makeSandbox()
  const { logDir } = sandbox.paths
  openLogFile(logDir, 'agent', sandbox.owner).write('one')
  openLogFile(logDir, 'agent', sandbox.owner).write('two')
  expect(fs.readFileSync(`${logDir}/agent.log`, 'utf8')).toBe('one\ntwo\n')
  fs.writeFileSync(`${sandbox.root}/file`, '')
  openLogFile(`${sandbox.root}/file`, 'agent', sandbox.owner).write('lost')
})

// Goal: a program that goes on writing after its log was emptied starts it anew, without a hole.
test('a program log is emptied under the program', async () => {
  await using sandbox = await makeSandbox()
  const { logDir } = sandbox.paths
  const fd = openProgramLog(logDir, 'sshd', sandbox.owner)
  fs.writeSync(fd, 'y'.repeat(logBytesMax))
  keepBounded(logDir, 'sshd')
  expect(fs.statSync(`${logDir}/sshd.log`).size).toBe(logBytesMax)
  fs.writeSync(fd, 'y')
  keepBounded(logDir, 'sshd')
  fs.writeSync(fd, 'next')
  fs.closeSync(fd)
  expect(fs.readFileSync(`${logDir}/sshd.log`, 'utf8')).toBe('next')
})
