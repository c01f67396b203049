import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../../scripts/rigs/until.ts'
import { newUuid } from '../../src/base/ids.ts'
import { identifyProcess } from '../../src/linux/process/running.ts'
import { scopeArgv } from '../../src/linux/process/scope.ts'
import {
  isAlive,
  listWithUuid,
  type ProcessIdentity,
  signalProcess,
  spawnDetached,
  waitGone,
} from '../../src/linux/process.ts'

const findByUuid = (wanted: string) => listWithUuid().find(({ uuid }) => uuid === wanted) ?? null

setDefaultTimeout(120_000)
const dir = mkdtempSync(join(tmpdir(), 'process-test-'))
// Blocks without a child of its own, which would have the same arguments for a moment.
const fifo = join(dir, 'fifo')
Bun.spawnSync(['mkfifo', fifo])
const stayScript = `read -t 60 <> ${fifo}`
const started: ProcessIdentity[] = []
afterAll(() => {
  for (const identity of started) signalProcess(identity, 'SIGKILL')
  rmSync(dir, { recursive: true })
})

/** A process that stays, with `-uuid <uuid>` in its arguments as QEMU has. */
function stay(uuid: string, extraFds: number[] = []) {
  const detached = spawnDetached(['bash', '-c', stayScript, '-uuid', uuid], {
    uuid,
    stdoutFile: join(dir, 'out'),
    extraFds,
    scope: `test-${uuid}`,
    systemd: false,
  })
  started.push(detached.identity)
  return detached
}

test('goal: an identity holds for the very process only: pid, start time and UUID', async () => {
  const uuid = newUuid()
  const { identity, exited } = stay(uuid)
  expect(isAlive(identity)).toBe(true)
  expect(identifyProcess(identity.pid)?.argv).toEqual(['bash', '-c', stayScript, '-uuid', uuid])
  expect(findByUuid(uuid)).toEqual(identity)
  expect(listWithUuid()).toContainEqual(identity)
  // A recycled pid has another start time; another VM's process has another UUID.
  const recycled = { ...identity, startTicks: identity.startTicks + 1 }
  const other = { ...identity, uuid: newUuid() }
  for (const wrong of [recycled, other, { ...identity, uuid: '' }]) {
    expect(isAlive(wrong)).toBe(false)
    expect(signalProcess(wrong, 'SIGKILL')).toBe(false)
  }
  expect(isAlive(identity)).toBe(true)
  expect(await waitGone(identity, 50)).toBe(false)

  expect(signalProcess(identity, 'SIGKILL')).toBe(true)
  expect(await waitGone(identity, 60_000)).toBe(true)
  expect(await exited).toBe(137)
  expect(signalProcess(identity, 'SIGKILL')).toBe(false)
  expect(findByUuid(uuid)).toBeNull()
})

test('goal: a zombie does not live', async () => {
  // Its parent turns into a program that never waits for it.
  const parent = Bun.spawn(['bash', '-c', 'sleep 60 >&- 2>&- & echo $!; exec sleep 61'], {
    stdout: 'pipe',
    stderr: 'ignore',
  })
  const { value } = await parent.stdout.getReader().read()
  const pid = Number(Buffer.from(value ?? []).toString())
  await until('the parent is another program', 30_000, () => identifyProcess(parent.pid)?.argv[0] === 'sleep')
  process.kill(pid, 'SIGKILL')
  await until('it is a zombie', 30_000, () => readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z '))
  expect(identifyProcess(pid)).toBeNull()
  parent.kill('SIGKILL')
  await parent.exited
})

test('goal: a detached process has its own session, no terminal, no pipe to us, and the passed descriptors in order', async () => {
  const [first, second] = ['first', 'second'].map(text => {
    writeFileSync(join(dir, text), text)
    return text
  }) as [string, string]
  const { openSync, closeSync } = await import('node:fs')
  const fds = [first, second].map(name => openSync(join(dir, name), 'r'))
  const uuid = newUuid()
  const output = join(dir, 'fds')
  const script =
    'cat <&3; cat <&4; echo; ls /proc/$$/fd; read -r stat </proc/$$/stat; set -- $stat; echo "session $6 $7 $$"; sleep 1'
  const { exited } = spawnDetached(['bash', '-c', script, uuid], {
    uuid,
    stdoutFile: output,
    extraFds: fds,
    scope: 'x',
    systemd: false,
  })
  expect(await exited).toBe(0)
  for (const fd of fds) closeSync(fd)
  const [texts, ...lines] = readFileSync(output, 'utf8').trim().split('\n')
  expect(texts).toBe('firstsecond')
  // Bash keeps a copy of its script as 255 at times.
  expect(lines.slice(0, -1).filter(fd => fd !== '255')).toEqual(['0', '1', '2', '3', '4'])
  const [, session, terminal, pid] = lines.at(-1)?.split(' ') ?? []
  expect({ session, terminal }).toEqual({ session: pid, terminal: '0' })
})

test('goal: a detached process survives kill -9 of the bun that started it', async () => {
  const uuid = newUuid()
  const script = join(dir, 'parent.ts')
  writeFileSync(
    script,
    `import { spawnDetached } from ${JSON.stringify(join(import.meta.dir, '../../src/linux/process.ts'))}
const { identity } = spawnDetached(['bash', '-c', ${JSON.stringify(stayScript)}, '-uuid', '${uuid}'], {
  uuid: '${uuid}', stdoutFile: ${JSON.stringify(join(dir, 'survivor'))}, scope: 'x', systemd: false })
process.stdout.write(JSON.stringify(identity) + '\\n')
setInterval(() => {}, 1000)
`,
  )
  const parent = Bun.spawn([process.execPath, script], { stdout: 'pipe' })
  const { value } = await parent.stdout.getReader().read()
  const identity: ProcessIdentity = JSON.parse(Buffer.from(value ?? []).toString())
  started.push(identity)
  parent.kill('SIGKILL')
  await parent.exited
  expect(isAlive(identity)).toBe(true)
  expect(findByUuid(uuid)).toEqual(identity)
  expect(signalProcess(identity, 'SIGKILL')).toBe(true)
  expect(await waitGone(identity, 60_000)).toBe(true)
})

test('goal: a detached process that cannot start, or does not name its VM, is a Fault', () => {
  const uuid = newUuid()
  const options = { uuid, stdoutFile: join(dir, 'none'), scope: 'x', systemd: false }
  expect(() => spawnDetached(['no-such-command', uuid], options)).toThrow('no-such-command: ')
  // A jail's command line begins with programs that nobody has heard of.
  const jailed = { ...options, program: 'the program' }
  expect(() => spawnDetached(['no-such-command', uuid], jailed)).toThrow(/^the program: /)
  expect(() => spawnDetached(['sleep', '1'], options)).toThrow('do not hold UUID')
})

test('goal: under systemd the command runs in a scope of its own (golden argv)', () => {
  expect(scopeArgv(['qemu', '-uuid', 'u'], 'strongroom-vm-u')).toEqual([
    'systemd-run',
    '--scope',
    '--quiet',
    '--collect',
    '--unit=strongroom-vm-u',
    '--',
    'qemu',
    '-uuid',
    'u',
  ])
})
