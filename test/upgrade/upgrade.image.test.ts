// strongroom upgrade in a booted Debian: the package of a later executable, with another schema, while a session to a VM
// is open and clients ask. Upgrades that fail in each way, that are cut off in each phase, and one that passes.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { DEPENDS } from '../../scripts/package/control.ts'
import { bootHost, type ProvedHost, publicV4, type Session } from '../../scripts/prove/host.ts'
import { imageDir } from '../../scripts/rigs/appliance.ts'
import { bareDebianTree, buildTimeoutMs } from '../../scripts/rigs/booted/tree.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import {
  faultFile,
  type LaterFault,
  laterExecutable,
  laterSchema,
  laterVersion,
} from '../../scripts/rigs/upgrade/later-executable.ts'
import { version } from '../../src/base/version.ts'
import { dropInPath } from '../../src/upgrade/host.driver.ts'
import type { UpgradeEnd } from '../../src/upgrade/record.ts'
import type { Phase } from '../../src/upgrade/upgrade.machine.ts'
import { Load } from '../rigs/upgrade/load.ts'
import { buildDeb } from '../rigs/upgrade/packages.ts'

const repo = resolve(import.meta.dir, '../..')
const timeoutMs = 300_000
const wholeTimeoutMs = 2_400_000
const endTimeoutMs = 120_000
const stateDir = '/var/lib/strongroom'
const schema = laterSchema - 1

beforeAll(async () => {
  await bareDebianTree(12)
  await imageDir()
  await laterExecutable()
}, 3 * buildTimeoutMs)

inOwnNetns(
  import.meta.path,
  () => {
    const directory = mkdtempSync('/var/tmp/srt-upgrade-')
    let host: ProvedHost
    let session: Session
    let load: Load
    let later = ''
    beforeAll(async () => {
      const first = await buildDeb(directory, '--executable', join(repo, 'dist/strongroom'), '--version', '0.1.0-1')
      later = await buildDeb(directory, '--executable', await laterExecutable(), '--version', '0.2.0-1')
      const images = await buildDeb(directory, '--images', await imageDir(), '--version', '0.1.0-1')
      host = await bootHost(12, [directory])
      await host.apt('satisfy', ...DEPENDS, 'swtpm', 'bubblewrap', 'erofs-utils', 'openssh-client')
      await host.install(first, images)
      const text = `domain = "agents.test"\n[network]\npublic_v4 = "${publicV4}"\n[listen]\ninference = ""\n[instances]\nrequests_per_minute = 1_000_000\n`
      writeFileSync(`${host.debian.root}/root/preseed.toml`, text)
      const words = ['init', '--preseed', '/root/preseed.toml', '--organization', 'acme', '--no-trial']
      const done = await host.strongroom(words, timeoutMs)
      expect(done.exitCode, done.stderr).toBe(0)
      const key = (await host.strongroom(['key', 'create', 'acme'])).stdout.trim()
      const { hostname } = await host.createInstance(key)
      session = await host.session(hostname)
      load = new Load(host)
    }, timeoutMs)
    afterAll(async () => {
      await load?.stop()
      await host?.[Symbol.asyncDispose]()
      Bun.spawnSync(['ip', 'link', 'delete', 'up0'])
      Bun.spawnSync(['nft', 'flush', 'ruleset'])
      rmSync(directory, { recursive: true, force: true })
    })

    const asked = [later, '--without-backup', 'a test', '--wait', '20']
    const upgrade = (...words: string[]) => host.strongroom(['upgrade', ...asked, ...words, '--json'], timeoutMs)
    const inside = (path: string) => `${host.debian.root}${path}`
    const arm = (fault: LaterFault | null) => {
      if (fault === null) rmSync(inside(faultFile), { force: true })
      else writeFileSync(inside(faultFile), fault)
    }
    const status = async () =>
      JSON.parse((await host.strongroom(['status', '--json'])).stdout) as {
        version: string
        problems: { name: string }[]
      }
    const record = () => {
      const path = inside(`${stateDir}/upgrade/record.json`)
      return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as { phase: Phase }) : null
    }
    /** As before: executable, drop-in, unit, database, session, and every request that was accepted. */
    const isAsBefore = async () => {
      await host.answers()
      expect((await status()).version).toBe(version)
      expect(existsSync(inside(dropInPath))).toBe(false)
      expect(existsSync(inside('/etc/systemd/system/strongroom-upgrade.service'))).toBe(false)
      expect((await host.debian.exec(['dpkg-query', '--status', 'strongroom'])).stdout).toContain('Version: 0.1.0-1\n')
      expect(await load.lost()).toEqual([])
      const { stdout } = await host.strongroom(['doctor', '--json'])
      const { checks } = JSON.parse(stdout) as { checks: { name: string; result: string; detail: string }[] }
      expect(checks.filter(({ result }) => result === 'FAIL')).toEqual([])
      expect(checks.find(({ name }) => name === 'database')?.detail).toContain(`schema ${schema}`)
    }

    describe('refused, with nothing changed', () => {
      const refused = async (words: string[], exitCode: number, ...texts: string[]) => {
        const pid = await host.systemctl('show', '--value', '--property=MainPID', 'strongroom.service')
        const { exitCode: code, stdout } = await host.strongroom(['upgrade', ...words, '--json'], timeoutMs)
        for (const text of texts) expect(stdout).toContain(text)
        expect(code).toBe(exitCode)
        expect(record()).toBe(null)
        expect(await host.systemctl('show', '--value', '--property=MainPID', 'strongroom.service')).toBe(pid)
      }

      test(
        'what is no later strongroom, or comes without a backup',
        async () => {
          // Goal: every refusal comes before the service is touched, names the reason and has its exit code.
          const none = ['--without-backup', 'a test']
          await refused([later], 2, 'required option --backup')
          await refused([later, '--backup', '/root/b.age'], 2, 'for whom it is sealed')
          await refused(['/etc/hostname', ...none], 2, 'neither a Debian package nor an executable')
          await refused(['/usr/bin/env', ...none], 5, 'is of the package strongroom 0.1.0-1')
          await refused([join(directory, 'strongroom_0.1.0-1_amd64.deb'), ...none], 5, 'serves already')
          await refused(
            [join(directory, 'strongroom-images_0.1.0-1_amd64.deb'), ...none],
            2,
            'apt install takes the others',
          )
          const config = inside('/etc/strongroom/strongroom.toml')
          const text = readFileSync(config, 'utf8')
          writeFileSync(config, `${text}\n[nonsense]\n`)
          await refused([later, ...none], 2, 'does not take the configuration', 'nonsense')
          writeFileSync(config, text)
        },
        timeoutMs,
      )

      test(
        'a dry run',
        async () => {
          // Goal: everything is checked and nothing stays.
          await refused([later, '--without-backup', 'a test', '--dry-run'], 0, laterVersion)
          expect(existsSync(inside(`${stateDir}/upgrade/candidate`))).toBe(false)
        },
        timeoutMs,
      )
    })

    describe.each(['crash', 'hang', 'migration', 'canary'] as const)('%s', fault => {
      test(
        'goes back to executable and database; the session lives, nothing accepted is lost',
        async () => {
          arm(fault)
          load.start()
          await session.echoes(`before ${fault}`)
          const { exitCode, stdout, stderr } = await upgrade()
          expect(exitCode, `${stdout}${stderr}`).toBe(1)
          expect((JSON.parse(stdout) as UpgradeEnd).outcome).toBe('returned')
          await session.echoes(`after ${fault}`)
          await load.stop()
          await isAsBefore()
        },
        timeoutMs,
      )
    })

    describe.each(['prepared', 'switching', 'trial'] as const)('killed in %s', phase => {
      test(
        'goes back by itself',
        async () => {
          // Goal: whoever does the work and whoever asked die at once; the unit ends it.
          arm(phase === 'trial' ? 'hang' : null)
          load.start()
          const asking = upgrade()
          await until(`phase ${phase}`, endTimeoutMs, () => record()?.phase === phase)
          await host.debian.exec(['sh', '-c', 'pkill --signal KILL --full "[u]pgrade"'], { check: false })
          await asking
          await until('it is ended', endTimeoutMs, () => record() === null)
          await session.echoes(`after a kill in ${phase}`)
          await load.stop()
          await isAsBefore()
        },
        timeoutMs,
      )
    })

    test(
      'on trial the new version answers reads, and accepts nothing',
      async () => {
        // Goal: the gate is shut for A and the operator; what it refuses says when to come back.
        arm(null)
        const asking = upgrade()
        await until('the new version answers', endTimeoutMs, async () => {
          const answered = await host.strongroom(['status', '--json'])
          return answered.exitCode === 0 && answered.stdout.includes(`"version": "${laterVersion}"`)
        })
        if (record()?.phase === 'trial') {
          const { stdout } = await host.strongroom(['org', 'create', 'toolate', '--json'])
          if (record()?.phase === 'trial') expect(stdout).toContain('is being upgraded')
        }
        expect((await asking).exitCode).toBe(0)
      },
      timeoutMs,
    )

    test(
      'it passed: the session lives, nothing is lost, a downgrade is refused and its way back works',
      async () => {
        load.start()
        await session.echoes('after the upgrade')
        await host.answers()
        expect(await status()).toMatchObject({ version: laterVersion, problems: [] })
        expect(existsSync(inside(dropInPath))).toBe(false)
        expect(existsSync(inside('/etc/systemd/system/strongroom-upgrade.service'))).toBe(false)
        expect((await host.debian.exec(['readlink', '-f', '/usr/bin/strongroom'])).stdout.trim()).toBe(
          '/usr/lib/strongroom/0.2.0-1/strongroom',
        )
        await load.stop()
        expect(await load.lost()).toEqual([])
        const older = join(directory, 'strongroom_0.1.0-1_amd64.deb')
        const refused = await host.strongroom(['upgrade', older, '--without-backup', 'a test', '--json'])
        expect([refused.exitCode, refused.stdout]).toEqual([
          5,
          expect.stringContaining('it is older') as unknown as string,
        ])
      },
      timeoutMs,
    )
  },
  { timeoutMs: wholeTimeoutMs },
)
