// Goal: the command line of the jail is deliberate, and a process on its way into it is not taken for the program.

import { expect, test } from 'bun:test'
import { scopeArgv } from '../../../src/linux/process/scope.ts'
import { confinedArgv } from '../../../src/vm/launch/confinement.plan.ts'
import { isBeforeProgram, jailArgv } from '../../../src/vm/launch/jail.plan.ts'

const program = ['/usr/bin/qemu-system-x86_64', '-uuid', 'x']
const jail = { files: ['/usr/bin/qemu-system-x86_64', '/lib/x.so'], devices: ['/dev/kvm'] }

test('goal: nothing is lost from the command line by accident', () => {
  expect(jailArgv(jail, program).join(' ')).toBe(
    'bwrap --unshare-user --unshare-pid --as-pid-1 --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup ' +
      '--disable-userns --cap-drop ALL --uid 65534 --gid 65534 --clearenv ' +
      '--ro-bind /usr/bin/qemu-system-x86_64 /usr/bin/qemu-system-x86_64 --ro-bind /lib/x.so /lib/x.so ' +
      '--dev-bind /dev/null /dev/null --dev-bind /dev/kvm /dev/kvm --proc /proc --remount-ro / --chdir / -- ' +
      '/usr/bin/qemu-system-x86_64 -uuid x',
  )
  expect(jailArgv({ ...jail, diesWithParent: true }, program)).toContain('--die-with-parent')
})

test('goal: every stage of a start is known as one, by its name and by its path, and the program is none', () => {
  const confinement = {
    uid: 70_000,
    groups: [],
    vcpus: 1,
    memoryMib: 1,
    diskGib: 0,
    devices: 0,
    systemd: true,
  } as const
  let argv = scopeArgv(confinedArgv({ ...confinement, platform: 'tcg' }, jailArgv(jail, program)), 'x')
  const seen: string[] = []
  while (argv.includes('--')) {
    seen.push(argv[0] ?? '')
    expect([isBeforeProgram(argv), isBeforeProgram([`/usr/bin/${argv[0]}`])]).toEqual([true, true])
    argv = argv.slice(argv.indexOf('--') + 1)
  }
  expect(seen).toEqual(['systemd-run', 'prlimit', 'choom', 'setpriv', 'bwrap'])
  expect(isBeforeProgram(argv)).toBe(false)
  // A process that ends has no command line for a moment: the start of a program that failed counted as a success.
  expect(isBeforeProgram([])).toBe(true)
})
