// The Debian packages in booted Debians: installed by apt, upgraded under a running VM by apt and by `strongroom
// upgrade`, removed, purged; and the host afterwards, compared with what it was. Debian 12 has a guest that boots, with
// an open session. test/upgrade/file.image.test.ts has every other way for an upgrade to fail.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { DEPENDS } from '../../../scripts/package/control.ts'
import { bootHost, type ProvedHost, publicV4, type Session } from '../../../scripts/prove/host.ts'
import { typeInit } from '../../../scripts/prove/typed-init.ts'
import { imageDir } from '../../../scripts/rigs/appliance.ts'
import { difference, type Traces, tracesOf } from '../../../scripts/rigs/booted/traces.ts'
import { bareDebianTree, buildTimeoutMs, type Release } from '../../../scripts/rigs/booted/tree.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { laterExecutable, laterSchema, laterVersion } from '../../../scripts/rigs/upgrade/later-executable.ts'
import { version } from '../../../src/base/version.ts'
import { editToml } from '../../../src/config/edit.ts'
import { buildDeb } from '../../rigs/upgrade/packages.ts'
import { UpgradedHost } from '../../rigs/upgrade/upgraded-host.ts'

const repo = resolve(import.meta.dir, '../../..')
const timeoutMs = 600_000
const wholeTimeoutMs = 2_400_000

/** The namespace of the tests has no way to Debian's mirror. */
beforeAll(async () => {
  for (const release of [12, 13] as const) await bareDebianTree(release)
  await imageDir()
}, 3 * buildTimeoutMs)

inOwnNetns(
  import.meta.path,
  () => {
    const directory = mkdtempSync('/var/tmp/srt-packages-')
    const executable = join(repo, 'dist/strongroom')
    let first = ''
    let second = ''
    let later = ''
    let images = ''
    beforeAll(async () => {
      first = await buildDeb(directory, '--executable', executable, '--version', '0.1.0-1')
      second = await buildDeb(directory, '--executable', executable, '--version', '0.1.0-2')
      later = await buildDeb(directory, '--executable', await laterExecutable(), '--version', '0.2.0-1')
      images = await buildDeb(directory, '--images', await imageDir(), '--version', '0.1.0-1')
    }, timeoutMs)
    afterAll(() => rmSync(directory, { recursive: true, force: true }))

    test(
      'goal: the same inputs give the same bytes',
      async () => {
        const again = join(directory, 'again')
        mkdirSync(again)
        const file = await buildDeb(again, '--executable', executable, '--version', '0.1.0-1')
        const digest = (path: string) => new Bun.CryptoHasher('sha256').update(readFileSync(path)).digest('hex')
        expect(digest(file)).toBe(digest(first))
        rmSync(again, { recursive: true })
      },
      timeoutMs,
    )

    describe.each([12, 13] as const)('Debian %d', (release: Release) => {
      let host: ProvedHost
      let upgraded: UpgradedHost
      let bare: Traces
      let key = ''
      /** On Debian 12 alone. */
      let instance: { readonly name: string; readonly session: Session }
      beforeAll(async () => {
        host = await bootHost(release, [directory])
        upgraded = UpgradedHost.of(host)
      }, timeoutMs)
      afterAll(() => upgraded?.[Symbol.asyncDispose]())

      test(
        'apt finds what the package needs, and nothing of it is missing',
        async () => {
          // Goal: on a bare Debian one command pulls everything that the service does not start without.
          const planned = await host.apt('--simulate', 'install', first)
          for (const name of ['qemu-system-x86', 'nftables', 'conntrack']) expect(planned).toContain(`Inst ${name} `)
          for (const name of ['swtpm', 'erofs-utils', 'openssh-client'])
            expect(planned).toMatch(new RegExp(`^Inst ${name} |^Conf ${name} `, 'm'))
          expect(planned).not.toMatch(/^Inst (lib)?gtk|^Inst qemu-system-gui /m)
          await host.apt('satisfy', ...DEPENDS)
          bare = await tracesOf(host.debian)
        },
        timeoutMs,
      )

      test(
        'the service starts by itself, answers, and says what it lacks',
        async () => {
          // Goal: no image, no KVM, no SNP: it runs, does not start over and over, and doctor names what is missing.
          await host.install(first)
          await host.answers()
          expect(await host.systemctl('is-enabled', 'strongroom.service')).toBe('enabled')
          expect(await host.systemctl('show', '--value', '--property=NRestarts', 'strongroom.service')).toBe('0')
          expect(await host.systemctl('--failed', '--no-legend')).toBe('')
          const { stdout } = await host.strongroom(['doctor'])
          expect(stdout).toMatch(/^FAIL +image .*\/var\/lib\/strongroom\/images\/instance/m)
          expect(stdout).toMatch(/^PASS +canary /m)
          expect((await host.strongroom(['config', 'check'])).stdout).toContain('/etc/strongroom/strongroom.toml: ok')
        },
        timeoutMs,
      )

      test(
        'systemd and dpkg find nothing amiss',
        async () => {
          // Goal: units parse on this release, no file differs from its sum, the link leads to the executable.
          const units = await host.debian.exec([
            'sh',
            '-c',
            'dpkg -L strongroom | grep -E "systemd/system/[^/]*[.](service|socket|timer)$"',
          ])
          // A bare Debian has no man; contents.test.ts looks for the pages that units name.
          const verify = ['systemd-analyze', '--man=no', 'verify']
          const verified = await host.debian.exec([...verify, ...units.stdout.trim().split('\n')])
          expect(verified.stdout + verified.stderr).toBe('')
          for (const unit of ['strongroom.service', 'strongroom-starter@none.service'])
            await host.debian.exec(['systemd-analyze', 'security', '--no-pager', '--threshold=30', unit])
          expect((await host.debian.exec(['dpkg', '--verify', 'strongroom'])).stdout).toBe('')
          expect((await host.debian.exec(['readlink', '-f', '/usr/bin/strongroom'])).stdout.trim()).toBe(
            '/usr/lib/strongroom/0.1.0-1/strongroom',
          )
        },
        timeoutMs,
      )

      test(
        'init refuses before it changes anything, then sets the host up',
        async () => {
          // Goal: what is lacking is named with its remedy and nothing is written; the second run changes nothing.
          const preseed = `${host.debian.root}/root/preseed.toml`
          writeFileSync(
            preseed,
            `domain = "agents.test"\n[network]\npublic_v4 = "${publicV4}"\n[listen]\ninference = ""\n`,
          )
          const config = () => readFileSync(`${host.debian.root}/etc/strongroom/strongroom.toml`, 'utf8')
          const before = config()
          const refused = await host.strongroom(['init', '--preseed', '/root/preseed.toml'])
          expect(refused.exitCode).toBe(1)
          expect(refused.stderr).toContain('nothing was changed')
          expect(refused.stderr).toContain('image: ')
          expect(config()).toBe(before)
          await host.install(images)
          const dry = await host.strongroom(['init', '--preseed', '/root/preseed.toml', '--dry-run'])
          expect(dry.stdout + dry.stderr).toContain('domain = "agents.test"')
          expect(config()).toBe(before)
          const words = ['init', '--preseed', '/root/preseed.toml', '--organization', 'acme']
          // The instance is tried on one release: it takes a minute of software emulation. On the other one a person
          // types the same answers.
          if (release === 12) {
            const done = await host.strongroom(words, timeoutMs)
            expect(done.exitCode, done.stderr).toBe(0)
            for (const step of ['create', 'boot', 'verify', 'log in', 'delete'])
              expect(done.stderr).toContain(`PASS  ${step}`)
            expect(done.stdout).toContain('What is next')
          } else expect(await typeInit(host, 'acme', ['--no-trial'], { timeoutMs })).toContain('What is next')
          const after = config()
          expect(after).toContain('#domain = ')
          const pid = await host.systemctl('show', '--value', '--property=MainPID', 'strongroom.service')
          expect((await host.strongroom([...words, '--no-trial'])).exitCode).toBe(0)
          expect(config()).toBe(after)
          expect(await host.systemctl('show', '--value', '--property=MainPID', 'strongroom.service')).toBe(pid)
          // The domain has changed on a host that no client knew: nothing of the former one is left to explain.
          const { stdout: status } = await host.strongroom(['status'])
          expect(status).not.toMatch(/earlier names|nightly timer is off/)
          expect(host.debian.journal('strongroom.service')).not.toContain('certificate authority replaced')
        },
        timeoutMs,
      )

      test(
        'goal: the service starts with another network.table, and nothing of the former one is left',
        async () => {
          const file = `${host.debian.root}/etc/strongroom/strongroom.toml`
          const before = readFileSync(file, 'utf8')
          const names = async () => (await host.debian.exec(['sh', '-c', 'ls /run/netns; nft list tables'])).stdout
          for (const [text, table, former] of [
            [editToml(before, [{ path: ['network', 'table'], value: 'other' }]), 'other', 'strongroom'],
            [before, 'strongroom', 'other'],
          ] as const) {
            writeFileSync(file, text)
            await host.systemctl('restart', 'strongroom.service')
            await host.answers()
            await until(`the table ${table}`, timeoutMs, async () => (await names()).includes(table))
            expect(await names()).not.toContain(former)
          }
        },
        timeoutMs,
      )

      const link = async () => (await host.debian.exec(['readlink', '-f', '/usr/bin/strongroom'])).stdout.trim()
      const daemon = () => host.systemctl('show', '--value', '--property=MainPID', 'strongroom.service')
      /** An instance whose boot is not waited for: QEMU and swtpm run in the jails that this bubblewrap makes. */
      const startVm = async () => {
        const { name } = await host.acceptInstance(key)
        const isRunning = async () => {
          const { data } = await host.api('GET', `/v1/instances/${name}`, key)
          expect(data.failure_code ?? null).toBeNull()
          return (await host.debian.exec(['pgrep', 'qemu-system'], { check: false })).exitCode === 0
        }
        await until('QEMU runs', timeoutMs, isRunning)
      }

      test(
        'apt upgrades the service alone, and VM and session live',
        async () => {
          // Goal: only the service starts anew, from the new directory.
          // The trial on the other release has made it.
          if (release === 13) await host.strongroom(['org', 'create', 'acme'])
          key = (await host.strongroom(['key', 'create', 'acme'])).stdout.trim()
          if (release === 12) {
            const { hostname, name } = await host.createInstance(key)
            instance = { name, session: await host.session(hostname) }
            await instance.session.echoes('before')
          } else await startVm()
          const before = await daemon()
          await host.install(second)
          await host.answers()
          expect(await daemon()).not.toBe(before)
          expect(await link()).toBe('/usr/lib/strongroom/0.1.0-2/strongroom')
          expect((await host.debian.exec(['ls', '/usr/lib/strongroom'])).stdout.trim().split('\n')).toEqual([
            '0.1.0-2',
            'current',
          ])
          if (release === 12) await instance.session.echoes('after')
          const scopes = ['systemctl', 'list-units', '--no-legend', 'strongroom-*.scope']
          expect((await host.debian.exec(scopes)).stdout).toContain('.scope')
        },
        timeoutMs,
      )

      if (release === 12) describeUpgrades()

      test(
        'removal ends what the kernel holds',
        async () => {
          // Goal: `remove` leaves no VM, tap, table or forwarding, but the state.
          if (release === 12) await startVm()
          expect(await host.apt('remove', 'strongroom')).not.toContain('not everything has ended')
          const left = difference(bare, await tracesOf(host.debian)).left
          const held = /^(?:process|link|address|route|nft|control group|namespace|setting|unit|mount|run) /
          expect(left.filter(line => held.test(line) && !/^unit .* not-found inactive dead /.test(line))).toEqual([])
          expect(left.some(line => line.includes('/var/lib/strongroom/strongroom.db'))).toBe(true)
          expect(left.some(line => line.includes('/etc/strongroom/strongroom.toml'))).toBe(true)
        },
        timeoutMs,
      )

      test(
        'installed again it serves again, and an upgrade leaves a stopped service alone',
        async () => {
          // Goal: the state of before is served at once; only an operator's own stop outlives an upgrade.
          const file = release === 12 ? later : second
          await host.install(file)
          await host.answers()
          expect((await host.strongroom(['org', 'list'])).stdout).toContain('acme')
          await host.systemctl('stop', 'strongroom.service')
          await host.apt('install', '--reinstall', file)
          expect(await host.systemctl('is-active', 'strongroom.service')).toBe('inactive')
        },
        timeoutMs,
      )

      test(
        'purge leaves nothing, file by file',
        async () => {
          // Goal: the host is as it was: files, users, units, kernel.
          await host.apt('purge', 'strongroom', 'strongroom-images')
          // The kernel ends namespaces and their links a moment later.
          let found = difference(bare, await tracesOf(host.debian))
          for (let look = 0; look < 5 && found.left.length + found.missing.length > 0; look += 1)
            found = difference(bare, await tracesOf(host.debian))
          expect(found).toEqual({ left: [], missing: [] })
        },
        timeoutMs,
      )

      /** `strongroom upgrade` of a package, with the VM and the session of before. */
      function describeUpgrades() {
        const installed = async () => (await host.debian.exec(['dpkg-query', '--status', 'strongroom'])).stdout
        /** QEMU's own process: the same VM, never started anew. */
        const qemu = async () =>
          (await host.debian.exec(['pgrep', '--full', 'qemu-system-x86_64.*-name'], { check: false })).stdout

        const refused = async (file: string, exitCode: number, text: string) => {
          const answer = await upgraded.upgrade(file)
          expect([answer.exitCode, answer.output]).toEqual([exitCode, expect.stringContaining(text) as never])
          expect(upgraded.record()).toBe(null)
        }

        test(
          'goal: refused: another package, a bare executable, the package that is installed',
          async () => {
            await refused(images, 2, 'it is the package strongroom-images')
            await refused(second, 5, 'serves already')
            await refused('/usr/lib/strongroom/0.1.0-2/strongroom', 5, 'is of the package strongroom 0.1.0-2')
          },
          timeoutMs,
        )

        test(
          'goal: one that fails: VM and session live, dpkg has not been asked, nothing accepted is lost',
          async () => {
            upgraded.fault('canary')
            const before = await qemu()
            upgraded.load.start()
            await instance.session.echoes('before the failed upgrade')
            const { exitCode, end, output } = await upgraded.upgrade(later, { waitS: 240 })
            expect([exitCode, end.outcome], output).toEqual([1, 'returned'])
            expect(end.reason ?? '').toContain('canary: as the test wants it')
            await instance.session.echoes('after the failed upgrade')
            await host.answers()
            await upgraded.load.stop()
            expect(await qemu()).toBe(before)
            expect(await upgraded.status()).toMatchObject({ version, problems: [] })
            expect(await link()).toBe('/usr/lib/strongroom/0.1.0-2/strongroom')
            expect(await installed()).toContain('Version: 0.1.0-2\n')
            expect(upgraded.traces()).toEqual([])
            expect(upgraded.load.acceptedCount()).toBeGreaterThan(0)
            expect(await upgraded.load.lost()).toEqual([])
            expect(await upgraded.schema()).toContain(`schema ${laterSchema - 1}`)
          },
          timeoutMs,
        )

        test(
          'goal: one that passes: VM and session live, dpkg has the new package, nothing accepted is lost',
          async () => {
            upgraded.fault(null)
            const before = await qemu()
            upgraded.load.start()
            const { exitCode, end, output } = await upgraded.upgrade(later, { waitS: 240 })
            expect([exitCode, end.outcome], output).toEqual([0, 'upgraded'])
            await instance.session.echoes('after the upgrade')
            await upgraded.load.stop()
            expect(await qemu()).toBe(before)
            expect(await upgraded.status()).toMatchObject({ version: laterVersion, problems: [] })
            expect(await link()).toBe('/usr/lib/strongroom/0.2.0-1/strongroom')
            expect(await installed()).toContain('Version: 0.2.0-1\n')
            expect((await host.debian.exec(['dpkg', '--verify', 'strongroom'])).stdout).toBe('')
            expect(upgraded.traces()).toEqual([])
            expect(await upgraded.load.lost()).toEqual([])
            expect(await upgraded.schema()).toContain(`schema ${laterSchema}`)
            // On trial reads are answered and changes are not: the gate was asked, and said no.
            const answers = upgraded.load
              .answers()
              .map(({ status, code, retryAfter }) => [status, code, retryAfter].join(' '))
            expect(new Set(answers).difference(new Set(['  ', '201  ']))).toEqual(
              new Set(['503 attestation_unavailable 5']),
            )
            // The new daemon has taken the VM up: its owner deletes it.
            await host.api('DELETE', `/v1/instances/${instance.name}`, key)
            await until('its VM is gone', timeoutMs, async () => (await qemu()) === '')
            await refused(second, 5, 'it is older')
            await instance.session.end()
          },
          timeoutMs,
        )
      }
    })
  },
  { timeoutMs: wholeTimeoutMs },
)
