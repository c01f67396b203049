import { expect, test } from 'bun:test'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createNft, parseCounters } from '../../../src/host/network/nft.ts'
import { run } from '../../../src/linux/command.ts'

/** No test is about it: a busy machine may take long to start nft. */
const limitMs = 60_000

const ruleset = `table inet strongroom {
  counter c_one { packets 3 bytes 500 }
  counter c_two { }
  quota q_one { over 10737418240 bytes used 5 bytes }
  quota q_two { over 123456789 bytes }
}
`

test('goal: output of another shape is a Fault, not a number', () => {
  for (const text of [
    'nonsense',
    '{}',
    '{"nftables":[{"quota":{"name":"q","bytes":-1,"used":0}}]}',
    '{"nftables":[{"counter":{"name":"c"}}]}',
  ]) {
    expect(() => parseCounters(text)).toThrow('nft list')
  }
})

test('goal: a table name that could be a command is refused', () => {
  for (const table of ['', 'a b', 'x; flush ruleset', 'X']) {
    expect(() => createNft({ table, log: silentLogger })).toThrow('not a table name')
  }
})

inOwnNetns(
  import.meta.path,
  () => {
    const nft = createNft({ table: 'strongroom', log: silentLogger, waitingMax: 3 })

    test('goal: counters and quotas of a real ruleset are read to the byte; none without the table', async () => {
      expect(await nft.tableExists(limitMs)).toBe(false)
      expect(await nft.readCounters(limitMs)).toBeNull()
      await nft.applyRuleset(ruleset, limitMs)
      expect(await nft.tableExists(limitMs)).toBe(true)
      const read = await nft.readCounters(limitMs)
      expect(Object.fromEntries(read?.counters ?? [])).toEqual({
        c_one: { packets: 3, bytes: 500 },
        c_two: { packets: 0, bytes: 0 },
      })
      expect(Object.fromEntries(read?.quotas ?? [])).toEqual({
        q_one: { usedBytes: 5, limitBytes: 10737418240 },
        q_two: { usedBytes: 0, limitBytes: 123456789 },
      })
    })

    test('goal: one bad line changes nothing, and the writer goes on', async () => {
      const before = await nft.readCounters(limitMs)
      const bad = 'add counter inet strongroom c_three\nadd counter inet nowhere c_four\n'
      expect(await failure(nft.applyRuleset(bad, limitMs))).toMatchObject({ code: 'host.command_failed' })
      expect(await nft.readCounters(limitMs)).toEqual(before)
      await nft.applyRuleset('add counter inet strongroom c_five\n', limitMs)
      expect((await nft.readCounters(limitMs))?.counters.has('c_five')).toBe(true)
    })

    test('goal: changes run in the order they were asked for, and only so many wait', async () => {
      const changes = [
        nft.applyRuleset('add counter inet strongroom c_order\n', limitMs),
        nft.applyRuleset('delete counter inet strongroom c_order\n', limitMs),
        nft.applyRuleset('create counter inet strongroom c_order\n', limitMs),
      ]
      const over = failure(nft.applyRuleset('flush ruleset\n', limitMs))
      await Promise.all(changes)
      expect(await over).toMatchObject({ code: 'host.command_failed', message: 'nft: 3 changes wait already' })
      expect((await nft.readCounters(limitMs))?.counters.has('c_order')).toBe(true)
    })

    test('goal: a quota counts real traffic and stops it; a flush is noticed', async () => {
      await nft.applyRuleset(
        `table inet strongroom {
  counter c_lo { }
  quota q_lo { over 1000 bytes }
  chain out { type filter hook output priority 0; oifname "lo" counter name c_lo; oifname "lo" quota name q_lo drop; }
}
`,
        limitMs,
      )
      const socket = await Bun.udpSocket({ hostname: '127.0.0.1', port: 0 })
      for (let n = 0; n < 20; n += 1) {
        try {
          socket.send(new Uint8Array(100), socket.port, '127.0.0.1')
        } catch {
          // EPERM: the rule drops it.
        }
      }
      socket.close()
      const read = await nft.readCounters(limitMs)
      expect(read?.counters.get('c_lo')).toEqual({ packets: 20, bytes: 2560 })
      // The kernel's count never exceeds the limit: spent is used === limit.
      expect(read?.quotas.get('q_lo')).toEqual({ usedBytes: 1000, limitBytes: 1000 })
      await run(['nft', 'flush', 'ruleset'], { timeoutMs: limitMs, outputBytesMax: 1_000 })
      expect(await nft.readCounters(limitMs)).toBeNull()
    })

    test('goal: deleting a table that is there or not leaves none', async () => {
      await nft.applyRuleset(ruleset, limitMs)
      await nft.deleteTables(limitMs)
      await nft.deleteTables(limitMs)
      expect(await nft.tableExists(limitMs)).toBe(false)
    })
  },
  { timeoutMs: 120_000 },
)
