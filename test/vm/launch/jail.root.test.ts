// The jail of a VM's programs, attacked from within by a program in QEMU's place: perl, which Debian always has, with
// nothing in its root but its own libraries. Real processes; needs root and bubblewrap.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  chmodSync,
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { newUuid } from '../../../src/base/ids.ts'
import { childrenOf, identifyProcess } from '../../../src/linux/process/running.ts'
import { type ProcessIdentity, signalProcess, spawnDetached, waitGone } from '../../../src/linux/process.ts'
import { readProc } from '../../../src/linux/stat.ts'
import { processesByUid } from '../../../src/linux/users.ts'
import { confinedArgv } from '../../../src/vm/launch/confinement.plan.ts'
import { jailArgv } from '../../../src/vm/launch/jail.plan.ts'
import { createJailFiles } from '../../../src/vm/launch/jail-files.driver.ts'
import { type JailedStart, settled, startJailed } from '../../../src/vm/launch/jailed.driver.ts'

const uid = 110_000 + (process.pid % 5_000)
const patienceMs = 60_000
const qemu = '/usr/bin/qemu-system-x86_64'
const missing =
  skipUnless(process.getuid?.() === 0, 'needs root to become another user') ||
  skipUnless(Bun.which('bwrap') !== null, 'needs bubblewrap')

const dir = mkdtempSync('/tmp/jail-test-')
const secret = join(dir, 'secret')
const started: ProcessIdentity[] = []
beforeAll(() => {
  chmodSync(dir, 0o755)
  writeFileSync(secret, 'secret', { mode: 0o644 })
})
afterAll(async () => {
  for (const identity of started) {
    signalProcess(identity, 'SIGKILL')
    await waitGone(identity, patienceMs)
  }
  rmSync(dir, { recursive: true, force: true })
})

const confinement = { uid, groups: [], platform: 'tcg', vcpus: 1, memoryMib: 128, diskGib: 0, devices: 0 } as const
const role: JailedStart['role'] = { kind: 'qemu', confinement }

/** `attack(NAME, RESULT)` prints whether the call worked. The program lives on, so that the host can look at it. */
const prelude = `
$| = 1;
sub attack { my ($name, $done) = @_; print "$name: ", ($done ? "DONE" : "refused"), "\n"; }
`

async function inJail(script: string, fds: readonly number[] = [], more: readonly string[] = []) {
  const uuid = newUuid()
  const file = join(dir, `${uuid}.pl`)
  const logFile = join(dir, `${uuid}.log`)
  writeFileSync(file, `${prelude}${script}\nprint "finished\n"; sleep 1000;`, { mode: 0o644 })
  const { program, files } = await createJailFiles().ofProgram('/usr/bin/perl')
  const identity = await startJailed(
    { uuid, role, files: [...files, file, ...more], argv: [program, file, '-uuid', uuid], logFile },
    fds,
  )
  started.push(identity)
  const log = () => readFileSync(logFile, 'utf8')
  await until('the attacks end', patienceMs, () => log().includes('finished')).catch(error => {
    throw new Error(log(), { cause: error })
  })
  return { identity, file, files, log: log() }
}

describe.skipIf(missing)('in the jail', () => {
  test('the root is empty but for the listed files, and nothing of it can be written', async () => {
    // Goal: an escape finds no file of the host, no directory of a VM, no socket, and no place to write to.
    const walk = `
      sub walk { my ($at) = @_;
        opendir(my $d, $at) or return;
        for my $name (sort readdir $d) {
          next if $name eq "." || $name eq "..";
          my $path = $at eq "/" ? "/$name" : "$at/$name";
          next if $path eq "/proc";
          if (-d $path && !-l $path) { walk($path) } else { print "found $path\n" }
        } }
      walk("/");
      attack("create", open(my $a, ">", "/x"));
      attack("make", mkdir("/tmp/x"));
      attack("own", open(my $b, ">>", $0));
      attack("library", open(my $c, ">>", "/etc/ld.so.cache"));
      attack("secret", open(my $e, "<", "${secret}"));
      attack("root", open(my $f, "<", "/proc/1/root${secret}"));
      attack("climb", chdir("/proc/self/cwd/..") && open(my $g, "<", "../../../..${secret}"));
      attack("remount", system("mount -o remount,rw /") == 0);
    `
    const { log, files, file } = await inJail(walk)
    const found = [...log.matchAll(/^found (.*)$/gm)].map(match => match[1] ?? '')
    expect(found).toEqual(['/dev/null', ...files, file].toSorted())
    expect(log).not.toContain('DONE')
    expect(log.match(/refused/g)?.length).toBe(8)
  })

  test('it is alone: one process, one interface that is no way out, no descriptor but those given', async () => {
    // Goal: namespaces of its own, seen from both sides; nothing of the daemon is inherited by accident.
    const neighbour = await inJail('')
    const given = openSync(secret, 'r')
    const { identity, log } = await inJail(
      `
      opendir(my $d, "/proc"); print "processes ", join(" ", grep { /^[0-9]+$/ } readdir $d), "\n";
      open(my $n, "<", "/proc/net/dev"); my @lines = <$n>; print "interface $_" for @lines[2..$#lines];
      open(my $r, "<", "/proc/net/route"); my @routes = <$r>; print "routes ", scalar(@routes) - 1, "\n";
      close $n; close $r; closedir $d;
      opendir($d, "/proc/self/fd"); print "descriptors ", join(" ", sort grep { /^[0-9]+$/ } readdir $d), "\n"; closedir $d;
      attack("signal", kill(0, ${neighbour.identity.pid}, ${process.pid}) > 0);
      attack("everybody", kill(0, -1) > 0);
      `,
      [given],
    )
    closeSync(given)
    expect(log).toContain('processes 1\n')
    expect(log.match(/^interface .*$/gm)).toEqual([expect.stringMatching(/^interface +lo:/)])
    expect(log).toContain('routes 0\n')
    // The last is the directory that it reads.
    expect(log).toContain('descriptors 0 1 2 3 4\n')
    expect(log).not.toContain('DONE')
    const namespaces = (pid: number | 'self') =>
      ['mnt', 'pid', 'net', 'ipc', 'uts', 'user', 'cgroup'].map(name => readlinkSync(`/proc/${pid}/ns/${name}`))
    const all = [...namespaces(identity.pid), ...namespaces(neighbour.identity.pid), ...namespaces('self')]
    expect(new Set(all).size).toBe(3 * 7)
  })

  test('it has no capability and no way to get one', async () => {
    // Goal: no namespace, mount, trace or identity beyond its own, whatever it calls.
    const [setns, unshare, mount, ptrace, setresuid, chroot, bpf, keyctl] = [308, 272, 165, 101, 117, 161, 321, 250]
    const { identity, log } = await inJail(`
      sub calls { my $number = shift; return syscall($number, @_) != -1 }
      open(my $ns, "<", "/proc/1/ns/mnt") or die; 
      attack("setns", calls(${setns}, fileno($ns), 0));
      attack("user namespace", calls(${unshare}, 0x10000000));
      attack("mount namespace", calls(${unshare}, 0x00020000));
      attack("network namespace", calls(${unshare}, 0x40000000));
      attack("clone", calls(56, 0x10000000 | 17, 0, 0, 0, 0));
      my ($none, $to, $type) = ("none", "/proc", "tmpfs");
      attack("mount", calls(${mount}, $none, $to, $type, 0, 0));
      attack("trace", calls(${ptrace}, 16, 1, 0, 0));
      attack("identity", calls(${setresuid}, 0, 0, 0));
      attack("chroot", calls(${chroot}, $to));
      attack("bpf", calls(${bpf}, 5, $none, 0));
      attack("keyring", calls(${keyctl}, 6, 1, 0, 0, 0));
      attack("sysctl", open(my $s, ">", "/proc/sys/kernel/core_pattern"));
      my ($u, $m);
      attack("more users", open($u, ">", "/proc/sys/user/max_user_namespaces") && syswrite($u, "10"));
      attack("map", open($m, ">", "/proc/self/uid_map") && syswrite($m, "0 0 1"));
    `)
    expect([...log.matchAll(/^(.*): DONE$/gm)].map(match => match[1])).toEqual([])
    expect(log.match(/refused/g)?.length).toBe(14)
    const status = readFileSync(`/proc/${identity.pid}/status`, 'utf8')
    for (const name of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'])
      expect(status).toContain(`${name}:\t0000000000000000\n`)
    expect(status).toContain('NoNewPrivs:\t1\n')
    expect(status).toContain(`Uid:\t${uid}\t${uid}\t${uid}\t${uid}\n`)
    expect(status).toMatch(/^NSpid:\t\d+\t1$/m)
  })

  test.each(['bwrap', 'the program'] as const)(
    'no bwrap is left beside it, if the next daemon finds %s',
    async which => {
      // Goal: one process for each VM, which signals and records mean; a start that was interrupted is finished.
      const uuid = newUuid()
      const { program, files } = await createJailFiles().ofProgram('/usr/bin/perl')
      const argv = jailArgv({ files, devices: [] }, [program, '-e', 'sleep 1000', '--', uuid])
      const holding = () =>
        readdirSync('/proc').filter(name => identifyProcess(Number(name))?.argv.some(word => word === uuid))
      const { identity: outer } = spawnDetached(confinedArgv({ ...confinement, systemd: false }, argv), {
        uuid,
        stdoutFile: join(dir, 'interrupted.log'),
        scope: '',
        systemd: false,
      })
      started.push(outer)
      await until('the program runs beside bwrap', patienceMs, () => holding().length === 2)
      // Here a daemon was killed; another one finds one of the two.
      const [child] = childrenOf(outer.pid).map(({ pid, startTicks }) => ({ pid, startTicks, uuid }))
      const found = which === 'bwrap' ? outer : child
      const inner = found === undefined ? null : await settled(found)
      if (inner === null) throw new Error('the program has ended')
      started.push(inner)
      expect(inner.pid).not.toBe(outer.pid)
      await until('bwrap is gone', patienceMs, () => holding().join() === String(inner.pid))
      expect(await settled(inner)).toEqual(inner)
      signalProcess(inner, 'SIGKILL')
      await until('it is gone', patienceMs, () => holding().length === 0)
      expect([await settled(inner), await settled(outer)]).toEqual([null, null])
    },
  )

  test('a jail that cannot be made is a failure with its reason', async () => {
    // Goal: the operator reads why, not that something timed out.
    const uuid = newUuid()
    const { program, files } = await createJailFiles().ofProgram('/usr/bin/perl')
    const logFile = join(dir, 'ended.log')
    const start = { uuid, role, files: [...files, '/nonexistent'], argv: [program, uuid], logFile }
    await expect(startJailed(start, [])).rejects.toThrow(
      /^\/usr\/bin\/perl: ended at once; .*ended.log ends: .*\/nonexistent: No such file/,
    )
  })

  test('nothing outlives its first process', async () => {
    // Goal: the end of QEMU is the end of all that an escape started.
    const { identity } = await inJail('if (fork() == 0) { setpgrp; close STDOUT; sleep 1000 }')
    const ofUser = () => processesByUid().get(uid) ?? []
    // Others of earlier tests may be ending.
    const both = ofUser().filter(pid => isBelow(pid, identity.pid))
    expect(both.length).toBe(2)
    signalProcess(identity, 'SIGKILL')
    await until('both are gone', patienceMs, () => !ofUser().some(pid => both.includes(pid)))
  })
})

/** Whether it is the process or a child of it. */
function isBelow(pid: number, parent: number): boolean {
  return pid === parent || readProc(pid, 'status')?.includes(`\nPPid:\t${parent}\n`) === true
}

describe('files of a program', () => {
  test.skipIf(skipUnless(Bun.which(qemu) !== null, 'needs QEMU'))('are those that it loads', async () => {
    // Goal: the list is this host's own: program, loader, libraries, firmware; no directory of others.
    const known = createJailFiles()
    const { program, files } = await known.ofQemu(qemu)
    expect(program).toBe(qemu)
    expect(files).toContain('/lib64/ld-linux-x86-64.so.2')
    expect(files.some(path => /\/libc\.so\.6$/.test(path))).toBe(true)
    expect(files).toContain('/usr/share/qemu')
    expect(
      files.filter(path => !/^\/(?:usr\/)?lib(?:64)?\/|^\/usr\/(?:bin|share)\/|^\/etc\/ld\.so\.cache$/.test(path)),
    ).toEqual([])
    expect(await known.ofQemu(qemu)).toBe(await known.ofQemu(qemu))
  })

  test('of a program that is not there, or that this host cannot load, are a failure', async () => {
    // Goal: the fault names the program and what is missing.
    const known = createJailFiles()
    await expect(known.ofProgram('/nonexistent/swtpm')).rejects.toThrow('/nonexistent/swtpm is not installed')
    const script = join(dir, 'script')
    writeFileSync(script, '#!/bin/sh\n', { mode: 0o755 })
    await expect(known.ofProgram(script)).rejects.toThrow(`list the libraries of ${script}`)
    mkdirSync(join(dir, 'empty'))
    await expect(known.ofProgram(join(dir, 'empty'))).rejects.toThrow('is not installed')
  })
})
