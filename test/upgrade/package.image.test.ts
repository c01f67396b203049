// strongroom upgrade of the Debian package, in a booted Debian with a VM and an open session: one that fails and goes
// back before dpkg was asked, and one that passes. test/upgrade/file.image.test.ts has every other way to fail.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import type { Session } from '../../scripts/prove/host.ts'
import { imageDir } from '../../scripts/rigs/appliance.ts'
import { bareDebianTree, buildTimeoutMs } from '../../scripts/rigs/booted/tree.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { laterExecutable, laterSchema, laterVersion } from '../../scripts/rigs/upgrade/later-executable.ts'
import { version } from '../../src/base/version.ts'
import { buildDeb } from '../rigs/upgrade/packages.ts'
import { configText, UpgradedHost } from '../rigs/upgrade/upgraded-host.ts'

const ours = resolve(import.meta.dir, '../../dist/strongroom')
const timeoutMs = 1_200_000
const wholeTimeoutMs = 3_600_000

beforeAll(async () => {
  await bareDebianTree(12)
  await imageDir()
  await laterExecutable()
}, 3 * buildTimeoutMs)

inOwnNetns(
  import.meta.path,
  () => {
    const directory = mkdtempSync('/var/tmp/srt-upgrade-')
    let host: UpgradedHost
    let session: Session
    let key = ''
    let name = ''
    let first = ''
    let later = ''
    let images = ''
    beforeAll(async () => {
      first = await buildDeb(directory, '--executable', ours, '--version', '0.1.0-1')
      later = await buildDeb(directory, '--executable', await laterExecutable(), '--version', '0.2.0-1')
      images = await buildDeb(directory, '--images', await imageDir(), '--version', '0.1.0-1')
      host = await UpgradedHost.boot([directory])
      await host.host.install(first, images)
      // init tells its own daemon by its answer.
      await host.host.answers()
      writeFileSync(host.inside('/root/preseed.toml'), configText)
      const words = ['init', '--preseed', '/root/preseed.toml', '--organization', 'acme', '--no-trial']
      const done = await host.host.strongroom(words, timeoutMs)
      expect(done.exitCode, done.stderr).toBe(0)
      // Without its trial, init makes no organization.
      await host.host.strongroom(['org', 'create', 'acme'])
      key = (await host.host.strongroom(['key', 'create', 'acme'])).stdout.trim()
      const instance = await host.host.createInstance(key)
      name = instance.name
      session = await host.host.session(instance.hostname)
    }, timeoutMs)
    afterAll(async () => {
      await host?.[Symbol.asyncDispose]()
      rmSync(directory, { recursive: true, force: true })
    })

    const link = async () => (await host.host.debian.exec(['readlink', '-f', '/usr/bin/strongroom'])).stdout.trim()
    const installed = async () => (await host.host.debian.exec(['dpkg-query', '--status', 'strongroom'])).stdout
    /** QEMU's own process: the same VM, never started anew. */
    const qemu = async () => (await host.host.debian.exec(['pgrep', '--full', 'qemu-system-x86_64.*-name'])).stdout

    test(
      'goal: refused: another package, a bare executable, the package that is installed',
      async () => {
        for (const [file, exitCode, text] of [
          [images, 2, 'it is the package strongroom-images'],
          [first, 5, 'serves already'],
          ['/usr/lib/strongroom/0.1.0-1/strongroom', 5, 'is of the package strongroom 0.1.0-1'],
        ] as const) {
          const refused = await host.upgrade(file)
          expect([refused.exitCode, refused.output], refused.output).toEqual([
            exitCode,
            expect.stringContaining(text) as never,
          ])
          expect(host.record()).toBe(null)
        }
      },
      timeoutMs,
    )

    test(
      'goal: one that fails: VM and session live, dpkg has not been asked, nothing accepted is lost',
      async () => {
        host.fault('canary')
        const before = await qemu()
        host.load.start()
        await session.echoes('before the failed upgrade')
        const { exitCode, end, output } = await host.upgrade(later, { waitS: 120 })
        expect([exitCode, end.outcome], output).toEqual([1, 'returned'])
        await session.echoes('after the failed upgrade')
        await host.host.answers()
        await host.load.stop()
        expect(await qemu()).toBe(before)
        expect(await host.status()).toMatchObject({ version, problems: [] })
        expect(await link()).toBe('/usr/lib/strongroom/0.1.0-1/strongroom')
        expect(await installed()).toContain('Version: 0.1.0-1\n')
        expect(host.traces()).toEqual([])
        expect(await host.load.lost()).toEqual([])
      },
      timeoutMs,
    )

    test(
      'goal: one that passes: VM and session live, dpkg has the new package, nothing accepted is lost',
      async () => {
        host.fault(null)
        const before = await qemu()
        host.load.start()
        const { exitCode, end, output } = await host.upgrade(later, { waitS: 120 })
        expect([exitCode, end.outcome], output).toEqual([0, 'upgraded'])
        await session.echoes('after the upgrade')
        await host.load.stop()
        expect(await qemu()).toBe(before)
        expect(await host.status()).toMatchObject({ version: laterVersion, problems: [] })
        expect(await link()).toBe('/usr/lib/strongroom/0.2.0-1/strongroom')
        expect(await installed()).toContain('Version: 0.2.0-1\n')
        expect((await host.host.debian.exec(['dpkg', '--verify', 'strongroom'])).stdout).toBe('')
        expect(host.traces()).toEqual([])
        expect(await host.load.lost()).toEqual([])
        expect(await host.schema()).toContain(`schema ${laterSchema}`)
        // The new daemon has taken the VM up: its owner deletes it.
        await host.host.api('DELETE', `/v1/instances/${name}`, key)
        const older = await host.upgrade(first)
        expect([older.exitCode, older.output]).toEqual([5, expect.stringContaining('it is older') as never])
        await session.end()
      },
      timeoutMs,
    )
  },
  { timeoutMs: wholeTimeoutMs },
)
