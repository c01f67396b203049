// Goal: what runs in a sandbox has no network, no privilege, nothing to write and nothing to see, and never outlives
// us.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { systemClock } from '../../src/base/clock.ts'
import { type Sandbox, sandboxArgv, startSandboxed } from '../../src/host/sandbox.ts'

const nobody = { uid: 65534, gid: 65534 }
const missing =
  skipUnless(process.getuid?.() === 0, 'needs root to become another user') ||
  skipUnless(Bun.which('bwrap') !== null, 'needs bubblewrap')

let dir = ''
beforeAll(() => {
  dir = mkdtempSync('/tmp/sandbox-test-')
  chmodSync(dir, 0o711)
  mkdirSync(join(dir, 'shared'))
  chownSync(join(dir, 'shared'), nobody.uid, nobody.gid)
  writeFileSync(join(dir, 'given'), 'given')
  chmodSync(join(dir, 'given'), 0o644)
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const sandbox = (memoryMiBMax: number | 'any' = 'any'): Sandbox => ({
  root: '/',
  user: nobody,
  env: { PATH: '/usr/bin:/bin', GREETING: 'hello' },
  mounts: [
    { kind: 'tmpfs', target: '/tmp', sizeBytes: 1_048_576 },
    { kind: 'bind', source: join(dir, 'shared'), target: '/tmp/shared', writable: true },
    { kind: 'bind', source: join(dir, 'given'), target: '/tmp/given', writable: false },
    { kind: 'read-only', target: '/tmp' },
  ],
  limits: { memoryMiBMax, tasksMax: 64 },
})

async function shell(
  script: string,
  memoryMiBMax: number | 'any' = 'any',
): Promise<{ exitCode: number; lines: string[] }> {
  const lines: string[] = []
  const started = startSandboxed(sandbox(memoryMiBMax), ['/bin/sh', '-c', script], {
    onLine: line => lines.push(line),
    lineBytesMax: 200,
  })
  return { exitCode: await started.exited, lines }
}

// Goal: nothing is lost from the command line by accident.
describe('the whole command line', () => {
  const isolated =
    'choom --adjust 900 -- setpriv --reuid=7 --regid=8 --clear-groups --no-new-privs -- bwrap ' +
    '--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-net --unshare-cgroup ' +
    '--disable-userns --die-with-parent --new-session --cap-drop ALL --uid 65534 --gid 65534 --clearenv ' +
    '--setenv A b c --ro-bind /r / --proc /proc --dev /dev --remount-ro /dev ' +
    '--size 9 --tmpfs /t --bind /s /t/s --ro-bind /m /t/m --remount-ro /t --chdir / -- /bin/x --y'
  const scope = 'systemd-run --scope --quiet --collect --property=Slice=strongroom.slice'
  for (const [name, memoryMiBMax, systemd, before] of [
    ['with a bound', 3, false, 'prlimit --core=0 --memlock=0 --data=3145728 -- '],
    ['without a bound', 'any', false, 'prlimit --core=0 --memlock=0 -- '],
    [
      'with a bound, under systemd',
      3,
      true,
      `${scope} --property=MemoryMax=3M --property=MemorySwapMax=0 --property=TasksMax=10 -- prlimit --core=0 --memlock=0 -- `,
    ],
    [
      'without a bound, under systemd',
      'any',
      true,
      `${scope} --property=TasksMax=10 -- prlimit --core=0 --memlock=0 -- `,
    ],
  ] as const) {
    test(name, () => {
      const argv = sandboxArgv(
        {
          root: '/r',
          user: { uid: 7, gid: 8 },
          env: { A: 'b c' },
          mounts: [
            { kind: 'tmpfs', target: '/t', sizeBytes: 9 },
            { kind: 'bind', source: '/s', target: '/t/s', writable: true },
            { kind: 'bind', source: '/m', target: '/t/m', writable: false },
            { kind: 'read-only', target: '/t' },
          ],
          limits: { memoryMiBMax, tasksMax: 10 },
        },
        ['/bin/x', '--y'],
        { systemd },
      )
      expect(argv.join(' ')).toBe(before + isolated)
    })
  }
})

describe('a real sandbox', () => {
  // Goal: the namespaces and limits are really in force, not only asked for.
  test.skipIf(missing)('has no privilege, no network and no other process', async () => {
    const { exitCode, lines } = await shell(`
      echo "id=$(id -u):$(id -g)"
      grep -E '^(CapEff|CapBnd|NoNewPrivs):' /proc/self/status
      echo "oom=$(cat /proc/self/oom_score_adj)"
      echo "interfaces=$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | tr '\\n' ' ')"
      echo "routes=$(tail -n +2 /proc/net/route | wc -l)"
      echo "processes=$(ls /proc | grep -c '^[0-9]')"
      echo "environment=$(env | grep -vE '^(PWD|SHLVL|_)=' | sort | tr '\\n' ' ')"
      unshare --user true 2>/dev/null && echo 'a further user namespace'
      exit 3`)
    expect(exitCode).toBe(3)
    const processes = Number(/\d+/.exec(lines.find(line => line.startsWith('processes=')) ?? '')?.[0])
    expect(processes).toBeWithin(2, 8)
    expect(lines.filter(line => !line.startsWith('processes='))).toEqual([
      'id=65534:65534',
      'CapEff:\t0000000000000000',
      'CapBnd:\t0000000000000000',
      'NoNewPrivs:\t1',
      'oom=900',
      'interfaces=lo ',
      'routes=0',
      'environment=GREETING=hello PATH=/usr/bin:/bin ',
    ])
  })

  // Goal: a worker that prints without end is slowed down, and delays nothing else here.
  test.skipIf(missing)('prints no more than a bounded rate, and keeps no timer waiting', async () => {
    let lines = 0
    const onLine = () => {
      lines += 1
    }
    const startMs = performance.now()
    const command = ['/bin/sh', '-c', 'yes & yes >&2']
    const started = startSandboxed(sandbox(), command, { onLine, lineBytesMax: 200 })
    let turns = 0
    // Without the bound the first turn never ends.
    while (turns < 100 || performance.now() - startMs < 3_000) {
      await Bun.sleep(10)
      turns += 1
    }
    await started.kill()
    const seconds = (performance.now() - startMs) / 1_000
    // Lines of two bytes; each of two streams, with a second's worth at once, and what is read ahead.
    expect(lines).toBeWithin(1, 2 * (seconds + 1) * 65_536 + 1_000_000)
  })

  // Goal: it writes to its writable mounts, and nowhere else.
  test.skipIf(missing)('writes only to what is mounted writable', async () => {
    const { lines } = await shell(`
      for path in /x /usr/x /tmp/x /tmp/given /etc/passwd /dev/x /dev/shm/x; do
        (echo changed >> $path) 2>/dev/null && echo "wrote $path"
      done
      cat /tmp/given
      echo
      echo out > /tmp/shared/made`)
    expect(lines).toEqual(['given'])
    expect(readFileSync(join(dir, 'shared', 'made'), 'utf8')).toBe('out\n')
  })

  // Goal: a program that takes more memory than it may does not get it, and one that stays below is not disturbed.
  test.skipIf(missing)('has no more memory than its bound', async () => {
    // tail(1) keeps a line without an end in memory.
    const keep = (mebibytes: number) => `head -c ${mebibytes * 1_048_576} /dev/zero | tail -n 1 | wc -c`
    const below = await shell(keep(16), 64)
    expect(below.lines).toEqual([String(16 * 1_048_576)])
    const above = await shell(keep(256), 64)
    expect(above.lines).not.toContain(String(256 * 1_048_576))
    const unbounded = await shell(keep(256))
    expect(unbounded.lines).toEqual([String(256 * 1_048_576)])
  })

  // Goal: output is bounded by line.
  test.skipIf(missing)('mentions an overlong line and goes on', async () => {
    const { lines } = await shell(`head -c 5000 /dev/zero | tr '\\0' x; echo; echo after; printf 'last words'`)
    expect(lines).toEqual(['(a line of more than 200 bytes)', 'after', 'last words'])
  })

  // Goal: kill takes children of children too, and none is left when it has resolved; their pipes end before they do.
  test.skipIf(missing)('kill ends every process', async () => {
    for (let round = 0; round < 20; round += 1) {
      const ready = Promise.withResolvers<void>()
      const command = ['/bin/sh', '-c', 'for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo up; wait']
      const started = startSandboxed(sandbox(), command, { onLine: () => ready.resolve(), lineBytesMax: 200 })
      await ready.promise
      const family = descendantsOf(started.pid)
      expect(family.length).toBeGreaterThanOrEqual(10)
      await Promise.all([started.kill(), started.kill()])
      expect(family.filter(isRunning)).toEqual([])
      expect(await started.exited).not.toBe(0)
      await started.kill()
    }
  })

  // Goal: a daemon that is killed leaves no worker behind.
  test.skipIf(missing)('ends when its starter is killed', async () => {
    const module = resolve(import.meta.dir, '../../src/host/sandbox.ts')
    const script = `
      import { startSandboxed } from ${JSON.stringify(module)}
      const started = startSandboxed(${JSON.stringify(sandbox())}, ['/bin/sh', '-c', 'echo up; exec sleep 1000'], {
        lineBytesMax: 200,
        onLine: () => process.stdout.write(started.pid + '\\n'),
      })`
    const starter = Bun.spawn(['bun', '-e', script], { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' })
    const { value } = await starter.stdout.getReader().read()
    const pid = Number(Buffer.from(value ?? new Uint8Array()).toString())
    const family = [pid, ...descendantsOf(pid)]
    expect(family.length).toBeGreaterThanOrEqual(3)
    starter.kill('SIGKILL')
    await starter.exited
    expect(await survivors(family)).toEqual([])
  })
})

function descendantsOf(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
    .trim()
    .split(' ')
    .filter(Boolean)
    .map(Number)
  return children.flatMap(child => [child, ...descendantsOf(child)])
}

// The kernel closes a process's files a little before it is gone.
async function survivors(pids: readonly number[]): Promise<number[]> {
  const deadlineMs = performance.now() + 30_000
  while (pids.some(isRunning) && performance.now() < deadlineMs) await systemClock.sleep(5)
  return pids.filter(isRunning)
}

function isRunning(pid: number): boolean {
  if (!existsSync(`/proc/${pid}/stat`)) return false
  return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
}
