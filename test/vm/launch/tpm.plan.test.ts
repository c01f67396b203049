// Goal: swtpm gets no path but its inherited descriptors, and its limits, exactly as written here.

import { expect, test } from 'bun:test'
import {
  confinedTpmArgv,
  swtpmArgv,
  tpmLabel,
  tpmLabelPrefix,
  tpmScopeProperties,
} from '../../../src/vm/launch/tpm.plan.ts'

test('goal: the command line, with a label that says whose TPM it is', () => {
  // The first 12 digits of the SHA-256 of the path.
  expect(tpmLabelPrefix('/var/lib/strongroom')).toBe('tpm-9c0e6cb15a66-')
  expect(tpmLabel('/var/lib/strongroom', 'vm1')).toBe('tpm-9c0e6cb15a66-vm1')
  const fds = { control: 3, state: 4 }
  expect(swtpmArgv({ swtpm: '/usr/bin/swtpm', vmId: 'vm1', stateDir: '/var/lib/strongroom', fds })).toEqual([
    ...['/usr/bin/swtpm', 'socket', '--tpm2'],
    ...['--tpmstate', 'backend-uri=file:///proc/self/fd/4'],
    ...['--ctrl', 'type=unixio,clientfd=3'],
    ...['--flags', 'startup-clear', '--terminate'],
    ...['--seccomp', 'action=kill'],
    ...['--log', 'level=1,prefix=tpm-9c0e6cb15a66-vm1 '],
  ])
})

test('goal: the limits, with the memory in the scope under systemd and else of the process', () => {
  expect(tpmScopeProperties()).toEqual([
    'Slice=strongroom.slice',
    'MemoryMax=64M',
    'MemorySwapMax=0',
    'TasksMax=4',
    'CPUWeight=10',
  ])
  const limits = ['prlimit', '--core=0', '--memlock=0', '--nofile=32', '--nproc=4', '--fsize=1048576']
  const become = [
    ...['--', 'choom', '--adjust', '500', '--', 'setpriv', '--reuid=61000', '--regid=61000', '--clear-groups'],
    ...['--no-new-privs', '--inh-caps=-all', '--bounding-set=-all', '--', 'swtpm', 'socket'],
  ]
  expect(confinedTpmArgv({ uid: 61_000, systemd: true }, ['swtpm', 'socket'])).toEqual([...limits, ...become])
  expect(confinedTpmArgv({ uid: 61_000, systemd: false }, ['swtpm', 'socket'])).toEqual([
    ...limits,
    '--data=67108864',
    ...become,
  ])
})
