// Processes by their user: found and ended, however they hide.

import { expect, test } from 'bun:test'
import { firstOwnUid } from '../../scripts/rigs/launch/own-uids.ts'
import { needsRoot } from '../../scripts/rigs/netns.ts'
import { failure, until } from '../../scripts/rigs/until.ts'
import { readStat } from '../../src/linux/stat.ts'
import { endProcessesOf, processesByUid } from '../../src/linux/users.ts'

const timeoutMs = 60_000
const uid = firstOwnUid()

/** Its first thread ends by itself (exit(2), not exit_group(2)); the runtime's other threads go on. */
const headless = `
const { dlopen } = require('bun:ffi')
const { symbols } = dlopen('libc.so.6', { syscall: { args: ['i64', 'i64'], returns: 'i64' } })
new Worker('data:text/javascript,setInterval(() => {}, 1000)')
setTimeout(() => symbols.syscall(60, 0), 200)
`

if (needsRoot(import.meta.path)) {
  const start = (...argv: string[]) => {
    const become = ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--no-new-privs', '--']
    return Bun.spawn([...become, ...argv], {
      env: { PATH: '/usr/bin:/bin', HOME: '/' },
      stdio: ['ignore', 'ignore', 'ignore'],
    })
  }
  const isRunning = () => processesByUid().has(uid)

  test(
    'goal: a process whose first thread has ended looks like a zombie, and is found and ended',
    async () => {
      if (process.arch !== 'x64') return process.stderr.write('not run: the number of exit(2) is that of x86-64\n')
      // A copy that others may run.
      const bun = `/tmp/users-test-${process.pid}`
      expect(Bun.spawnSync(['install', '--mode=755', process.execPath, bun]).exitCode).toBe(0)
      try {
        const child = start(bun, '-e', headless)
        await until('its first thread ends', timeoutMs, () => readStat(child.pid) === null)
        expect(processesByUid().get(uid)).toEqual([child.pid])
        await endProcessesOf(uid, timeoutMs)
        await child.exited
        expect(isRunning()).toBe(false)
      } finally {
        Bun.spawnSync(['rm', '--force', bun])
      }
    },
    3 * timeoutMs,
  )

  test(
    'goal: processes that start others meanwhile are ended, and nobody else is',
    async () => {
      const bystander = Bun.spawn(['setpriv', `--reuid=${uid + 1}`, '--clear-groups', 'sleep', '1000'])
      const parent = start('bash', '-c', 'ulimit -u 40; while :; do setsid sleep 1000 & sleep 0.02; done')
      await until('some of them run', timeoutMs, () => (processesByUid().get(uid)?.length ?? 0) > 5)
      await endProcessesOf(uid, timeoutMs)
      await parent.exited
      expect(isRunning()).toBe(false)
      expect(bystander.exitCode).toBeNull()
      bystander.kill('SIGKILL')
      await bystander.exited
    },
    3 * timeoutMs,
  )

  test(
    'goal: what does not end within the time is a Fault that names it',
    async () => {
      const child = start('sleep', '1000')
      await until('it runs', timeoutMs, isRunning)
      expect(await failure(endProcessesOf(uid, 0))).toMatchObject({
        code: 'host.command_timeout',
        message: expect.stringContaining(`uid ${uid}`),
      })
      await endProcessesOf(uid, timeoutMs)
      await child.exited
    },
    3 * timeoutMs,
  )
}
