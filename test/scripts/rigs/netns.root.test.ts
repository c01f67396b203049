import { expect, setDefaultTimeout, test } from 'bun:test'
import { createNetns, needsRoot, removeStaleNetns } from '../../../scripts/rigs/netns.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'

setDefaultTimeout(120_000)

const names = () => Bun.spawnSync(['ip', 'netns', 'list']).stdout.toString().split(/\s+/)

if (needsRoot('netns.test.ts')) {
  test('goal: a namespace is empty but for loopback, and goes with whatever runs in it', async () => {
    const netns = createNetns()
    expect(names()).toContain(netns.name)
    expect(
      JSON.parse(await netns.run(['ip', '-json', 'link', 'show'])).map(({ ifname }: { ifname: string }) => ifname),
    ).toEqual(['lo'])
    expect(await netns.run(['cat'], { stdin: 'text' })).toBe('text')
    expect((await failure(netns.run(['bash', '-c', 'echo why >&2; exit 3']))).message).toContain('3: why')
    const left = Bun.spawn(netns.argv(['sleep', '60']))
    await until('it runs inside', 60_000, () => Bun.spawnSync(['ip', 'netns', 'pids', netns.name]).stdout.length > 0)
    netns.close()
    netns.close()
    await left.exited
    expect(names()).not.toContain(netns.name)
  })

  test('goal: namespaces of test processes that are gone are removed, those of living ones and of others are not', async () => {
    const gone = Bun.spawn(['true'])
    await gone.exited
    const stale = `srt-${gone.pid}-1`
    const other = `srx-${process.pid}`
    using mine = createNetns()
    for (const name of [stale, other]) Bun.spawnSync(['ip', 'netns', 'add', name])
    removeStaleNetns()
    const left = names()
    Bun.spawnSync(['ip', 'netns', 'delete', other])
    expect([left.includes(stale), left.includes(other), left.includes(mine.name)]).toEqual([false, true, true])
  })
}
