// strongroom upgrade of an executable that was installed by hand, in a booted Debian, while an operator asks for
// changes all the time: refusals, upgrades that fail, that are killed in a phase, and the way back from one that ended.
// Without VMs, so with a small image: test/scripts/package/package.image.test.ts has both, with an open session.
//
// supervise.test.ts goes through every failure and phase, and test/backup/kill.root.test.ts through kills anywhere;
// here are those that systemd and the unit decide.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { runsAll } from '../../scripts/rigs/all.ts'
import { buildTimeoutMs, debianTree } from '../../scripts/rigs/booted/tree.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import {
  LATER_FAULTS,
  type LaterFault,
  laterExecutable,
  laterSchema,
  laterVersion,
} from '../../scripts/rigs/upgrade/later-executable.ts'
import { version } from '../../src/base/version.ts'
import { PHASES, type Phase } from '../../src/upgrade/upgrade.machine.ts'
import { type IdleImage, idleImage } from '../rigs/launch/idle-image.ts'
import { UpgradedHost } from '../rigs/upgrade/upgraded-host.ts'

const ours = resolve(import.meta.dir, '../../dist/strongroom')
const timeoutMs = 600_000
/** Ten times what it takes where the machine has nothing else to do. */
const wholeTimeoutMs = 1_800_000
const phaseTimeoutMs = 240_000

/** `hang` holds the trial of the power cut, `crash` leads to `returning`, and the packages have `canary`. */
const faults = runsAll ? LATER_FAULTS : (['migration'] as const)
/**
 * `accepted` comes last: what it leaves is what the downgrade begins with. The power cut has `trial`, with a boot
 * instead of the unit's restart.
 */
const killedIn = runsAll ? PHASES.filter(phase => phase !== 'accepted') : (['prepared', 'returning'] as const)

beforeAll(async () => {
  await debianTree()
}, buildTimeoutMs)

inOwnNetns(
  import.meta.path,
  () => {
    const directory = mkdtempSync('/var/tmp/srt-upgrade-')
    const later = join(directory, 'strongroom-later')
    let host: UpgradedHost
    let image: IdleImage
    beforeAll(async () => {
      copyFileSync(await laterExecutable(), later)
      image = await idleImage()
      host = await UpgradedHost.boot([directory, image.directory])
      await host.installByHand(ours, image.directory)
    }, timeoutMs)
    afterAll(async () => {
      await host?.[Symbol.asyncDispose]()
      image?.[Symbol.dispose]()
      rmSync(directory, { recursive: true, force: true })
    })

    /** The former version serves with its database and every change that was accepted. */
    const isAsBefore = async () => {
      await host.host.answers()
      await host.load.stop()
      expect(await host.status()).toMatchObject({ version, ready: true })
      expect(host.traces()).toEqual([])
      expect(host.load.acceptedCount()).toBeGreaterThan(0)
      expect(await host.load.lost()).toEqual([])
      expect(await host.schema()).toContain(`schema ${laterSchema - 1}`)
    }

    const refused = async (words: string[], exitCode: number, ...texts: string[]) => {
      const { exitCode: code, stdout } = await host.host.strongroom(['upgrade', ...words, '--json'], timeoutMs)
      for (const text of texts) expect(stdout).toContain(text)
      expect(code).toBe(exitCode)
      expect(host.traces()).toEqual([])
    }
    const none = ['--without-backup', 'a test']

    test(
      'goal: what is no later strongroom, or comes without a backup, is refused with nothing changed',
      async () => {
        // Goal: every refusal comes before the service is touched, names the reason, and has its exit code.
        const { pid } = await host.status()
        await refused([later], 2, 'required option --backup')
        await refused([later, '--without-backup', ' '], 2, 'takes a reason')
        await refused([later, '--backup', '/root/b.age'], 2, 'for whom it is sealed')
        await refused(['/etc/hostname', ...none], 2, 'neither a Debian package nor an executable')
        await refused(['/etc', ...none], 2, 'is no file')
        await refused(['/usr/bin/env', ...none], 2, 'does not run')
        await refused(['/usr/local/bin/strongroom', ...none], 5, 'serves already')
        const config = host.inside('/etc/strongroom/strongroom.toml')
        const text = readFileSync(config, 'utf8')
        writeFileSync(config, `${text}\n[nonsense]\n`)
        await refused([later, ...none], 2, 'does not take the configuration', 'nonsense')
        writeFileSync(config, text)
        await refused([later, ...none, '--dry-run'], 0, laterVersion)
        const other = await host.host.debian.exec([later, 'upgrade', later, ...none], { check: false })
        expect([other.exitCode, other.stderr]).toEqual([
          5,
          expect.stringContaining('this is another executable') as never,
        ])
        expect((await host.status()).pid).toBe(pid)
      },
      timeoutMs,
    )

    test.each(faults)(
      'goal: %s: executable and database go back, and nothing that was accepted is lost',
      async fault => {
        host.fault(fault)
        host.load.start()
        const { exitCode, end, output } = await host.upgrade(later, fault === 'hang' ? {} : { waitS: 120 })
        expect([exitCode, end.outcome], output).toEqual([1, 'returned'])
        expect(end.reason ?? '').toContain(REASONS[fault])
        await isAsBefore()
      },
      timeoutMs,
    )

    /** The command and the unit are killed at once, in this phase. */
    const killIn = async (phase: Phase) => {
      host.fault(FAULT_IN[phase])
      host.hold(phase)
      host.load.start()
      const asking = host.upgrade(later)
      await host.isHeld(asking)
      expect(host.record()?.phase).toBe(phase)
      await host.killAll()
      await asking
      // The command may have died before the unit was there; then nobody goes on, and nothing was changed.
      if (phase === 'prepared') await host.host.strongroom(['upgrade', '--resume'])
      await host.isEnded()
    }

    test.each(killedIn)(
      'goal: killed in %s, before the acceptance, the unit alone brings back what was there',
      async phase => {
        await killIn(phase)
        await isAsBefore()
      },
      timeoutMs,
    )

    test(
      'a power cut on trial: after the boot the former version comes back',
      async () => {
        // Goal: nobody waits any more, the drop-in is on the disk, and nothing is accepted until it is gone.
        host.fault('hang')
        host.load.start()
        const asking = host.upgrade(later)
        await until('phase trial', phaseTimeoutMs, () => host.record()?.phase === 'trial')
        await host.load.stop()
        await host.reboot()
        await asking.catch(() => {})
        await host.isEnded()
        await isAsBefore()
      },
      timeoutMs,
    )

    test(
      'goal: killed in accepted, the unit alone ends the upgrade, and nothing that was accepted is lost',
      async () => {
        await killIn('accepted')
        await host.host.answers()
        await host.load.stop()
        expect(await host.status()).toMatchObject({ version: laterVersion, ready: true })
        expect(host.traces()).toEqual([])
        expect(await host.load.lost()).toEqual([])
        expect(await host.schema()).toContain(`schema ${laterSchema}`)
      },
      timeoutMs,
    )

    test(
      'goal: an older executable is refused, its way back is named, and leads back as the help says',
      async () => {
        const older = join(directory, 'strongroom-older')
        copyFileSync(ours, older)
        await refused([older, ...none], 5, 'it is older', `supports schema ${laterSchema - 1}`)
        const { stderr } = await host.host.strongroom(['upgrade', older, ...none])
        expect(stderr).toContain('strongroom downgrade')
        await host.host.systemctl('stop', 'strongroom.service')
        await host.host.debian.exec(['cp', '/var/lib/strongroom/upgrade/former', '/usr/local/bin/strongroom.new'])
        await host.host.debian.exec(['mv', '/usr/local/bin/strongroom.new', '/usr/local/bin/strongroom'])
        expect((await host.host.strongroom(['downgrade'])).exitCode).toBe(0)
        await host.host.systemctl('start', 'strongroom.service')
        await host.host.answers()
        expect(await host.status()).toMatchObject({ version, ready: true })
        expect(await host.schema()).toContain(`schema ${laterSchema - 1}`)
      },
      timeoutMs,
    )
  },
  { timeoutMs: wholeTimeoutMs },
)

/** Fault that brings an upgrade into the phase. */
const FAULT_IN: Readonly<Record<Phase, LaterFault | null>> = {
  prepared: null,
  switching: null,
  trial: null,
  accepted: null,
  returning: 'crash',
  returned: 'crash',
}

const REASONS = {
  crash: 'ended at its start',
  hang: 'did not answer within 20 s',
  migration: 'ended at its start',
  canary: 'canary: as the test wants it',
} as const
