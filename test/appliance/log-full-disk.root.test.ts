// Goal: an appliance that starts on a full disk says that its log cannot be written, to clients and to its operator,
// launches nothing unlogged, and goes on by itself as soon as there is room.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startBuilds } from '../../scripts/rigs/build/builds-service.ts'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { composeTransparency } from '../../src/appliance/log/transparency.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { logSummary, unwritableLog } from '../../src/operator/log.ts'
import { openStore } from '../../src/store/db.ts'
import { fillDisk, smallDisk } from '../rigs/small-disk.ts'

const measurement = 'ab'.repeat(48)

inOwnNetns(
  import.meta.path,
  () => {
    test('goal: start with a full disk', async () => {
      await using undo = new AsyncDisposableStack()
      const parent = mkdtempSync(join(tmpdir(), 'srt-appliance-log-'))
      undo.defer(() => rmSync(parent, { recursive: true }))
      const stateDir = join(parent, 'state')
      undo.use(smallDisk(stateDir, 8))
      const store = openStore(join(stateDir, 'strongroom.db'))
      undo.defer(() => store.close())
      const clock = createManualClock()
      const events: string[] = []
      const transparency = composeTransparency({
        config: defaultConfig(),
        stateDir,
        store,
        operatorKey: { digest: new Uint8Array(48).fill(7) },
        onEvent: kind => void events.push(kind),
        clock,
        random: systemRandom,
        log: silentLogger,
      })
      undo.defer(() => transparency.stop())
      const { log, beforeLaunch, logRoutes } = transparency
      await using service = await startBuilds({ starts: false, others: logRoutes })
      const served = async () => {
        const { status, headers, text } = await service.send('GET', '/log/checkpoint', { key: null })
        return { status, later: headers.get('retry-after'), text }
      }

      const ballast = fillDisk(stateDir)
      transparency.start()
      expect(() => beforeLaunch({ measurement, workload: null })).toThrow()
      expect(await served()).toMatchObject({
        status: 503,
        later: '60',
        text: expect.stringContaining('cannot be written'),
      })
      expect(unwritableLog(transparency)).toMatchObject([{ name: 'log', remedy: expect.stringContaining('make room') }])
      expect(logSummary(transparency, clock.nowMs())).toMatchObject({ size: 0, problems: [{ severe: true }] })
      expect(events).toEqual([])

      rmSync(ballast)
      // Nobody asks for anything: it tries again by itself.
      await clock.elapse(60_000)
      expect([log.failure(), unwritableLog(transparency), events]).toEqual([null, [], ['log.begun']])
      expect(logSummary(transparency, clock.nowMs())).toMatchObject({ size: 1, shown: 1, problems: [] })
      beforeLaunch({ measurement, workload: null })
      expect([(await served()).status, log.head()?.size]).toEqual([200, 2])
    })
  },
  { timeoutMs: 60_000 },
)
