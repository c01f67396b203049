// Leftovers of a killed test go with the next run, whatever it was doing. Alone, because making a namespace removes
// stale ones.

import { expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { clearLeftovers, runMarkVariable } from '../../../scripts/lib/leftovers.ts'
import { cgroup2Root } from '../../../scripts/rigs/build/vm.ts'
import { needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'

test.skipIf(!needsRoot('test/scripts/lib/leftovers.alone.test.ts'))(
  'a process without a mark goes with the namespace of the test that started it',
  async () => {
    // Goal: a paused QEMU of a killed test ignores all but SIGKILL, has its own environment and holds its tap.
    const owner = Bun.spawn(['true'])
    await owner.exited
    const name = `srt-${owner.pid}-1`
    expect(Bun.spawnSync(['ip', 'netns', 'add', name]).exitCode).toBe(0)
    const script = 'kill -STOP $$; sleep 600'
    const child = Bun.spawn(['ip', 'netns', 'exec', name, 'sh', '-c', script], {
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
      stdio: ['ignore', 'ignore', 'ignore'],
    })
    try {
      await until('it is paused', 60_000, () => /^State:\s+T/m.test(readFileSync(`/proc/${child.pid}/status`, 'utf8')))
      const removed = (await clearLeftovers(`nobody-${process.pid}`)).filter(leftover => leftover.thing.name === name)
      expect(removed).toMatchObject([{ thing: { kind: 'namespace' }, removed: true }])
      await until('it has ended', 60_000, () => child.signalCode === 'SIGKILL')
      expect(existsSync(`/run/netns/${name}`)).toBe(false)
    } finally {
      child.kill('SIGKILL')
      Bun.spawnSync(['ip', 'netns', 'delete', name])
    }
  },
  120_000,
)

test.skipIf(!needsRoot('test/scripts/lib/leftovers.alone.test.ts'))(
  'what a child of a run left goes with the run, and nothing of another run does',
  async () => {
    // Goal: each child of a run has a mark of its own that begins with the run's.
    const mark = crypto.randomUUID()
    const startWith = (value: string) =>
      Bun.spawn(['sleep', '600'], { env: { [runMarkVariable]: value }, stdio: ['ignore', 'ignore', 'ignore'] })
    const children = [startWith(mark), startWith(`${mark}.${crypto.randomUUID()}`)]
    const other = startWith(crypto.randomUUID())
    try {
      await until('both have begun', 60_000, () => children.every(({ pid }) => isSleep(pid)))
      await clearLeftovers(mark)
      for (const child of children) {
        await child.exited
        expect(child.signalCode).toBe('SIGKILL')
      }
      expect(other.signalCode).toBe(null)
    } finally {
      for (const child of [...children, other]) child.kill('SIGKILL')
    }
  },
  120_000,
)

test.skipIf(!needsRoot('test/scripts/lib/leftovers.alone.test.ts'))(
  'a name that leads to no namespace goes, one that leads to one stays',
  async () => {
    // Goal: a daemon in a mount namespace that has ended leaves the name alone, whatever it is called.
    const [nothing, mine] = [`nobody-${process.pid}`, `kept-${process.pid}`]
    mkdirSync('/run/netns', { recursive: true })
    writeFileSync(`/run/netns/${nothing}`, '')
    utimesSync(`/run/netns/${nothing}`, 0, 0)
    expect(Bun.spawnSync(['ip', 'netns', 'add', mine]).exitCode).toBe(0)
    try {
      const found = await clearLeftovers(`nobody-${process.pid}`)
      expect(found.filter(({ thing }) => thing.name === nothing)).toMatchObject([
        { thing: { kind: 'name' }, removed: true },
      ])
      expect(found.filter(({ thing }) => thing.name === mine)).toEqual([])
      expect([nothing, mine].map(name => existsSync(`/run/netns/${name}`))).toEqual([false, true])
    } finally {
      rmSync(`/run/netns/${nothing}`, { force: true })
      Bun.spawnSync(['ip', 'netns', 'delete', mine])
    }
  },
  120_000,
)

test.skipIf(!needsRoot('test/scripts/lib/leftovers.alone.test.ts'))(
  'mounts, control groups and directories of a process that has ended go, those of a living one stay',
  async () => {
    // Goal: a killed build VM leaves no mounts; what is bound into its directory is not deleted with it.
    const owner = Bun.spawn(['true'])
    await owner.exited
    const kept = mkdtempSync(join(tmpdir(), 'srt-bound-'))
    writeFileSync(join(kept, 'file'), '')
    const cgroupRoot = cgroup2Root() ?? ''
    const made = [owner.pid, process.pid].map(pid => {
      const directory = mkdtempSync(`/tmp/srt-${pid}-left-`)
      const group = join(cgroupRoot, basename(directory))
      mkdirSync(join(group, 'inner'), { recursive: true })
      mkdirSync(join(directory, 'bound'))
      expect(Bun.spawnSync(['mount', '-t', 'tmpfs', 'tmpfs', directory]).exitCode).toBe(0)
      mkdirSync(join(directory, 'bound'))
      expect(Bun.spawnSync(['mount', '--bind', kept, join(directory, 'bound')]).exitCode).toBe(0)
      writeFileSync(join(directory, 'open'), '')
      // As a VM's QEMU: no mark, another parent later, and files there.
      const user = Bun.spawn(['sleep', '600'], { env: {}, stdin: Bun.file(join(directory, 'open')), stdout: 'ignore' })
      return { directory, group, user }
    })
    const [ended, living] = made
    try {
      const found = await clearLeftovers(`nobody-${process.pid}`)
      const removedOf = (name = '') => found.flatMap(({ thing, removed }) => (thing.name === name ? [removed] : []))
      expect([removedOf(ended?.directory), removedOf(ended?.group)]).toEqual([[true], [true]])
      expect([removedOf(living?.directory), removedOf(living?.group)]).toEqual([[false], [false]])
      expect(made.map(({ directory, group }) => [existsSync(directory), existsSync(group)])).toEqual([
        [false, false],
        [true, true],
      ])
      expect(readFileSync('/proc/self/mountinfo', 'utf8')).not.toContain(ended?.directory ?? '')
      await ended?.user.exited
      expect([ended?.user.signalCode, living?.user.signalCode]).toEqual(['SIGKILL', null])
      expect([existsSync(join(living?.directory ?? '', 'bound/file')), existsSync(join(kept, 'file'))]).toEqual([
        true,
        true,
      ])
    } finally {
      for (const { directory, group, user } of made) {
        user.kill('SIGKILL')
        Bun.spawnSync(['umount', '--lazy', join(directory, 'bound'), directory], { stderr: 'ignore' })
        rmSync(directory, { recursive: true, force: true })
        for (const path of [join(group, 'inner'), group]) if (existsSync(path)) rmdirSync(path)
      }
      rmSync(kept, { recursive: true, force: true })
    }
  },
  120_000,
)

/** Whether it has its own environment by now. */
function isSleep(pid: number): boolean {
  return readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith('sleep\0')
}

test.skipIf(!needsRoot('test/scripts/lib/leftovers.alone.test.ts'))(
  'a run that gets SIGTERM',
  async () => {
    // Goal: it ends what its test started, also without a mark, removes the namespace, and starts nothing else.
    const root = mkdtempSync(join(tmpdir(), 'srt-interrupted-'))
    const ready = join(root, 'ready')
    const waiting = `import { writeFileSync } from 'node:fs'
      import { test } from 'bun:test'
      test('waits', async () => {
        const name = 'srt-' + process.pid + '-1'
        Bun.spawnSync(['ip', 'netns', 'add', name])
        const child = Bun.spawn(['setsid', 'ip', 'netns', 'exec', name, 'sh', '-c', 'echo $$ > ${root}/pid; kill -STOP $$; sleep 600'],
          { env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' }, stdio: ['ignore', 'ignore', 'ignore'] })
        while (!(Bun.file('${root}/pid').size > 0)) await Bun.sleep(20)
        writeFileSync('${ready}', name)
        await child.exited
      }, 600_000)`
    mkdirSync(join(root, 'test'))
    writeFileSync(join(root, 'test/a.slow.test.ts'), waiting)
    for (const name of ['b', 'c', 'd'])
      writeFileSync(join(root, `test/${name}.alone.test.ts`), 'throw new Error("it ran")')
    const run = Bun.spawn(['bash', join(import.meta.dir, '../../../scripts/test'), '--root', root], {
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'inherit',
    })
    try {
      // The file is there before its text is.
      await until('the test has begun', 200_000, () => existsSync(ready) && readFileSync(ready, 'utf8') !== '')
      const name = readFileSync(ready, 'utf8')
      const pid = readFileSync(join(root, 'pid'), 'utf8').trim()
      expect([existsSync(`/run/netns/${name}`), existsSync(`/proc/${pid}`)]).toEqual([true, true])
      run.kill('SIGTERM')
      const [output, code] = await Promise.all([run.stdout.text(), run.exited])
      expect([code, output.trimEnd().split('\n').at(-1)]).toEqual([130, '0 passed, 1 failed'])
      expect(output).toContain(`left over: namespace ${name}: removed`)
      expect(output).not.toContain('it ran')
      expect(existsSync(`/run/netns/${name}`)).toBe(false)
      await until('the process has ended', 60_000, () => !existsSync(`/proc/${pid}`))
    } finally {
      run.kill('SIGKILL')
      rmSync(root, { recursive: true, force: true })
    }
  },
  400_000,
)
