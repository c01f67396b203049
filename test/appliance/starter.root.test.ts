// Goal: the starter starts what a VM or a worker needs, as a user without privileges, and nothing else, whatever a
// taken-over daemon asks; VMs outlive it, sandboxes do not outlive the daemon. Real processes; needs root, bubblewrap
// and systemd's socket activation, which stands for PID 1.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join, resolve } from 'node:path'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { until } from '../../scripts/rigs/until.ts'
import { createStarter } from '../../src/appliance/starter/client.ts'
import { systemClock } from '../../src/base/clock.ts'
import { newUuid } from '../../src/base/ids.ts'
import { createDeadlines } from '../../src/base/work/deadlines.ts'
import { connectedUnix, receiveLine, sendWithDescriptors } from '../../src/host/descriptors.ts'
import type { Sandbox } from '../../src/host/sandbox.ts'
import { ChildError, startSchemaChild } from '../../src/inference/schema-check/child.ts'
import { unixSocketPair } from '../../src/linux/libc/sockets.ts'
import { identifyProcess } from '../../src/linux/process/running.ts'
import { isAlive, type ProcessIdentity, signalProcess } from '../../src/linux/process.ts'
import { processesByUid } from '../../src/linux/users.ts'
import { createJailFiles } from '../../src/vm/launch/jail-files.driver.ts'
import type { JailedStart } from '../../src/vm/launch/jailed.driver.ts'

const timeoutMs = 180_000
const patienceMs = 60_000
const activate = 'systemd-socket-activate'
const missing =
  skipUnless(process.getuid?.() === 0, 'needs root to become another user') ||
  skipUnless(Bun.which('bwrap') !== null, 'needs bubblewrap') ||
  skipUnless(Bun.which(activate) !== null, `needs ${activate}`)
const uid = 115_000 + (process.pid % 2_000)

const dir = mkdtempSync('/tmp/starter-test-')
const path = join(dir, 'starter.sock')
const main = resolve(import.meta.dir, '../../src/main.ts')
const started: ProcessIdentity[] = []
let listener: Bun.Subprocess | null = null

describe.skipIf(missing)('the starter', () => {
  beforeAll(async () => {
    chmodSync(dir, 0o755)
    // An instance of its own for each connection, as strongroom-starter@.service is.
    listener = Bun.spawn([activate, '--accept', '--inetd', `--listen=${path}`, process.execPath, main, 'starter'], {
      stdout: 'ignore',
      stderr: 'ignore',
    })
    // The file is there before somebody listens. proc_pid_net(5): the flag is __SO_ACCEPTCON.
    await until('it listens', patienceMs, () =>
      readFileSync('/proc/net/unix', 'utf8')
        .split('\n')
        .some(line => line.includes(' 00010000 ') && line.endsWith(` ${path}`)),
    )
  })
  afterAll(async () => {
    for (const identity of started) signalProcess(identity, 'SIGKILL')
    listener?.kill('SIGKILL')
    await listener?.exited
    rmSync(dir, { recursive: true, force: true })
  })

  const startOf = async (script: string): Promise<JailedStart> => {
    const uuid = newUuid()
    mkdirSync(join(dir, 'vms', uuid), { recursive: true })
    const { program, files } = await createJailFiles().ofProgram('/usr/bin/perl')
    const confinement = { uid, groups: [], platform: 'tcg', vcpus: 1, memoryMib: 128, diskGib: 0, devices: 0 } as const
    return {
      uuid,
      role: { kind: 'qemu', confinement },
      files,
      argv: [program, '-e', script, '--', uuid],
      logFile: join(dir, 'vms', uuid, 'qemu.log'),
    }
  }

  test(
    'starts a program with its descriptors, and is gone before it',
    async () => {
      // Goal: a VM runs as its user, with the daemon's descriptors, and nobody is its parent.
      const given = join(dir, 'given')
      writeFileSync(given, 'given')
      const fd = openSync(given, 'r')
      const start = await startOf('$| = 1; open(my $f, "<&=", 3); print "read ", <$f>, "\\n"; sleep 1000')
      const identity = await createStarter(path).startJailed(start, [fd])
      closeSync(fd)
      started.push(identity)
      await until('it has read', patienceMs, () => readFileSync(start.logFile, 'utf8').includes('read given\n'))
      expect(isAlive(identity)).toBe(true)
      const status = readFileSync(`/proc/${identity.pid}/status`, 'utf8')
      expect(status).toContain(`Uid:\t${uid}\t${uid}\t${uid}\t${uid}\n`)
      expect(status).toContain('NoNewPrivs:\t1\n')
      // Nothing of ours is its parent.
      expect(status).not.toContain(`PPid:\t${process.pid}\n`)
    },
    timeoutMs,
  )

  test(
    'refuses other users, groups, logs and programs than those of a VM',
    async () => {
      // Goal: a daemon that was taken over gains no user of the system and appends to no file of root.
      const good = await startOf('sleep 1000')
      const { confinement } = good.role as Extract<JailedStart['role'], { kind: 'qemu' }>
      const as = (changes: object): JailedStart => ({
        ...good,
        role: { kind: 'qemu', confinement: { ...confinement, ...changes } },
      })
      for (const [start, why] of [
        [as({ uid: 0 }), /request: \/.*/],
        [as({ uid: 33 }), /user 33 is one of the system/],
        [as({ groups: [42] }), /group 42 has none of the devices/],
        [{ ...good, logFile: join(dir, 'strongroom.db') }, /log .*strongroom.db/],
        [{ ...good, logFile: join(dir, 'vms', newUuid(), 'qemu.log') }, /log .*qemu.log/],
        [{ ...good, argv: ['/bin/sh', good.uuid] }, /\/bin\/sh is not in the jail/],
        [{ ...good, role: { kind: 'tpm', uid: 33 } }, /user 33 is one of the system/],
      ] as const)
        await expect(createStarter(path).startJailed(start, [])).rejects.toThrow(why)
      expect(existsSync(join(dir, 'strongroom.db'))).toBe(false)
      expect(processesByUid().get(33) ?? []).toEqual([])
    },
    timeoutMs,
  )

  test(
    'says why a program did not start',
    async () => {
      // Goal: the daemon's log names the reason, not the helper.
      const start = await startOf('sleep 1000')
      const starting = createStarter(path).startJailed({ ...start, files: [...start.files, '/nonexistent'] }, [])
      await expect(starting).rejects.toThrow(/starter: .*\/nonexistent: No such file/)
      await expect(createStarter(join(dir, 'none')).startJailed(start, [])).rejects.toThrow(/connect .*none: ENOENT/)
    },
    timeoutMs,
  )

  const sandbox: Sandbox = {
    root: '/',
    user: { uid, gid: uid },
    env: { PATH: '/usr/bin:/bin' },
    mounts: [],
    limits: { memoryMiBMax: 'any', tasksMax: 16 },
  }

  test(
    'passes on what a sandboxed program says and how it ends, and ends it when asked',
    async () => {
      // Goal: the daemon sees its worker as if it were its child.
      const lines: string[] = []
      const output = { onLine: (line: string) => lines.push(line), lineBytesMax: 100 }
      const { startSandboxed } = createStarter(path)
      expect(await startSandboxed(sandbox, ['/bin/sh', '-c', 'echo one; echo two >&2; exit 7'], output).exited).toBe(7)
      expect(lines.toSorted()).toEqual(['one', 'two'])
      const left = () =>
        (processesByUid().get(uid) ?? []).filter(pid => !started.some(identity => identity.pid === pid))
      // The end of a program is said when its output has ended, a moment before its process.
      await until('the first one is gone', patienceMs, () => left().length === 0)
      const endless = startSandboxed(sandbox, ['/bin/sh', '-c', 'echo here; sleep 1000'], output)
      await until('it runs', patienceMs, () => lines.includes('here'))
      expect(endless.pid).toBeGreaterThan(1)
      await endless.kill()
      expect(left()).toEqual([])
    },
    timeoutMs,
  )

  test(
    'checks schemas as nobody, and ends the check with its daemon',
    async () => {
      // Goal: a client's schema is compiled by a process without rights, which the daemon itself could not start.
      const deadlines = createDeadlines(systemClock)
      const { startSchemaProcess } = createStarter(path)
      let pid = 0
      const child = await startSchemaChild(deadlines, async fd => {
        const process = await startSchemaProcess(fd)
        ;({ pid } = process)
        return process
      })
      const schema = '{"type":"object","properties":{"a":{"type":"string"}}}'
      expect(await child.run({ owner: '', scope: '', schema, contents: ['{"a":"b"}'] })).toEqual({ verdict: 'valid' })
      expect(await child.run({ owner: '', scope: '', schema, contents: [`{"a":"${'b'.repeat(8_000_000)}"}`] })).toEqual(
        { verdict: 'valid' },
      )
      expect(await child.run({ owner: '', scope: '', schema, contents: ['{"a":1}'] })).toEqual({ verdict: 'violated' })
      expect(readFileSync(`/proc/${pid}/status`, 'utf8')).toMatch(/^Uid:\s+65534\s+65534\s+65534\s+65534$/m)
      child.kill()
      await expect(child.run({ owner: '', scope: '', schema, contents: [] })).rejects.toEqual(new ChildError('lost'))
      expect(child.isAlive()).toBe(false)
      await until('it is gone', patienceMs, () => !existsSync(`/proc/${pid}`))
    },
    timeoutMs,
  )

  test(
    'ends a sandboxed program whose daemon is gone',
    async () => {
      // Goal: no worker serves nobody.
      const socket = connectedUnix(path)
      const request = { kind: 'sandboxed', sandbox, command: ['/bin/sleep', '1000'], lineBytesMax: 100 }
      sendWithDescriptors(socket, Buffer.from(`${JSON.stringify(request)}\n`), [])
      const sleeps = () => (processesByUid().get(uid) ?? []).some(pid => identifyProcess(pid)?.argv[0] === '/bin/sleep')
      await until('it runs', patienceMs, sleeps)
      closeSync(socket)
      await until('it is gone', patienceMs, () => !sleeps())
    },
    timeoutMs,
  )
})

describe('descriptors over a socket', () => {
  const pair = () => {
    const made = unixSocketPair()
    if (!made.ok) throw new Error(`socketpair: ${made.errno}`)
    return made.fds
  }

  test('arrive with the line, as copies', () => {
    // Goal: a descriptor belongs to its request.
    const [ours, theirs] = pair()
    const file = openSync(import.meta.path, 'r')
    const text = 'x'.repeat(100_000)
    sendWithDescriptors(ours, Buffer.from(`${text}\n`), [file, file])
    const { line, fds } = receiveLine(theirs, 200_000)
    expect([line === text, fds.length, new Set([file, ...fds]).size]).toEqual([true, 2, 3])
    expect(readFileSync(fds[1] ?? -1, 'utf8')).toStartWith('// Goal: the starter')
    for (const fd of [ours, theirs, file, ...fds]) closeSync(fd)
  })

  test('a line without an end, or too long, is refused and leaves no descriptor', () => {
    // Goal: a broken sender costs neither memory nor descriptors.
    const [ours, theirs] = pair()
    const file = openSync(import.meta.path, 'r')
    const before = openSync('/proc/self/status', 'r')
    closeSync(before)
    sendWithDescriptors(ours, Buffer.from('x'.repeat(70_000)), [file])
    expect(() => receiveLine(theirs, 60_000)).toThrow('more than 60000 bytes')
    sendWithDescriptors(ours, Buffer.from('y'), [file])
    closeSync(ours)
    expect(() => receiveLine(theirs, 100_000)).toThrow('ended in the middle')
    closeSync(theirs)
    closeSync(file)
    // The lowest free number is the one from before.
    const after = openSync('/proc/self/status', 'r')
    expect(after).toBeLessThanOrEqual(before)
    closeSync(after)
  })
})
