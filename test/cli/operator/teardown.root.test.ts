// `strongroom teardown` in a network namespace of its own: tables, taps and settings. Scopes are ended in
// test/scripts/package, where systemd runs.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { link } from '../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { tearDown } from '../../../src/cli/operator/teardown.driver.ts'
import { settingsNote } from '../../../src/host/changed-settings.ts'
import { createVmNamespace } from '../../../src/host/network/vm-namespace.ts'
import { enableForwarding } from '../../../src/host/system.ts'
import { lockFile } from '../../../src/linux/lock.ts'

const timeoutMs = 60_000
const network = { table: 'strongroom', tap_prefix: 'sr' }

function run(...argv: string[]): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(argv)
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${stderr.toString()}`)
  return stdout.toString()
}

inOwnNetns(
  import.meta.path,
  () => {
    describe('what the appliance holds in the kernel', () => {
      let stateDir = ''
      beforeEach(() => {
        stateDir = mkdtempSync(join(tmpdir(), 'srt-teardown-'))
      })
      afterEach(() => rmSync(stateDir, { recursive: true, force: true }))

      test('goal: it goes, and what belongs to others stays; a second run finds nothing', async () => {
        writeFileSync('/proc/sys/net/ipv4/ip_forward', '0')
        enableForwarding(settingsNote({ stateDir }))
        for (const table of ['inet strongroom', 'inet theirs']) run('nft', 'add', 'table', ...table.split(' '))
        const rules = run('ip', 'rule', 'show')
        const namespace = createVmNamespace({ ...link, name: 'strongroom' })
        await namespace.open()
        namespace.netns.run(() => run('ip', 'tuntap', 'add', 'dev', 'sr0123456789', 'mode', 'tap'))
        expect(run('ip', 'rule', 'show')).not.toBe(rules)
        run('ip', 'tuntap', 'add', 'dev', 'tap0', 'mode', 'tap')
        run('ip', 'link', 'add', 'srdummy', 'type', 'veth', 'peer', 'name', 'srother')
        const steps = await tearDown({ stateDir, network })
        expect(steps.filter(({ problem }) => problem !== null)).toEqual([])
        const ended = Object.fromEntries(steps.map(step => [step.name, step.ended]))
        expect(ended.tables).toEqual(['inet strongroom'])
        expect(ended.namespace).toEqual(['routing rules (IPv4)', 'sr-vms', 'strongroom'])
        expect(run('ip', 'rule', 'show')).toBe(rules)
        expect(run('ip', 'netns', 'list')).not.toContain('strongroom')
        expect(ended.settings).toEqual(['net.ipv4.ip_forward = 0'])
        expect(run('nft', 'list', 'tables').trim()).toBe('table inet theirs')
        expect(run('ip', '-brief', 'link', 'show')).toMatch(/tap0[\s\S]*srdummy/)
        expect(readFileSync('/proc/sys/net/ipv4/ip_forward', 'utf8').trim()).toBe('0')
        const again = await tearDown({ stateDir, network })
        expect(again.flatMap(({ ended, problem }) => [...ended, ...(problem === null ? [] : [problem])])).toEqual([])
      })

      test('goal: a QEMU of this state directory ends, one of another does not', async () => {
        const start = (directory: string) => {
          mkdirSync(`${directory}/vms`, { recursive: true })
          const words = ['-uuid', crypto.randomUUID(), `${directory}/vms/a`]
          return Bun.spawn(['bash', '-c', 'read -r _', 'qemu', ...words], { stdin: 'pipe' })
        }
        const other = mkdtempSync(join(tmpdir(), 'srt-teardown-'))
        const [ours, theirs] = [start(stateDir), start(other)]
        const steps = await tearDown({ stateDir, network })
        expect(steps.find(({ name }) => name === 'processes')?.ended).toEqual([`${ours.pid}`])
        expect(await ours.exited).not.toBe(0)
        expect(theirs.exitCode).toBeNull()
        theirs.kill()
        await theirs.exited
        rmSync(other, { recursive: true })
      })

      test('goal: while a daemon runs, nothing is touched', async () => {
        run('nft', 'add', 'table', 'inet', 'strongroom')
        using _daemon = lockFile(`${stateDir}/lock`)
        expect(await tearDown({ stateDir, network }).catch(error => error)).toMatchObject({ code: 'conflict' })
        expect(run('nft', 'list', 'tables')).toContain('inet strongroom')
      })

      test('goal: without a state directory it still clears the kernel', async () => {
        rmSync(stateDir, { recursive: true })
        expect((await tearDown({ stateDir, network })).map(({ problem }) => problem)).toEqual(Array(5).fill(null))
      })
    })
  },
  { timeoutMs },
)
