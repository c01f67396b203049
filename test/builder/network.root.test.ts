import { expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { succeed } from '../../scripts/rigs/guest/root.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'

// Goal: after the fetch phase the VM has no address, no route and no interface that is up; a second call changes
// nothing.
test.skipIf(skipUnless(userInfo().uid === 0, 'needs root'))('the network is taken down', () => {
  const name = `sr-build-${process.pid}`
  succeed(['ip', 'netns', 'add', name])
  try {
    const inside = (...argv: string[]) => succeed(['ip', 'netns', 'exec', name, ...argv])
    inside('ip', 'link', 'set', 'lo', 'up')
    inside('ip', 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'host0')
    inside('ip', 'link', 'set', 'host0', 'up')
    inside('ip', 'link', 'set', 'eth0', 'up')
    inside('ip', 'address', 'add', '192.0.2.2/32', 'dev', 'eth0')
    inside('ip', 'route', 'add', '192.0.2.1/32', 'dev', 'eth0')
    inside('ip', 'route', 'add', 'default', 'via', '192.0.2.1', 'dev', 'eth0')
    expect(inside('ip', 'route')).toContain('default')
    const source = (path: string) => JSON.stringify(join(import.meta.dir, '../../src', path))
    const program = `const { takeNetworkDown } = await import(${source('builder/network.ts')}); const { run } = await import(${source('linux/command.ts')}); for (let i = 0; i < 2; i += 1) await takeNetworkDown('/sys/class/net', run)`
    inside(process.execPath, '-e', program)
    expect(inside('ip', 'route')).toBe('')
    expect(inside('ip', '-6', 'route', 'show', 'default')).toBe('')
    expect(inside('ip', '-oneline', 'address', 'show', 'dev', 'eth0')).toBe('')
    expect(inside('ip', '-oneline', 'link', 'show', 'up').trim().split('\n').length).toBe(1)
  } finally {
    succeed(['ip', 'netns', 'delete', name])
  }
})
