// Settings that the appliance changes for the whole host, and how they come back. In a network namespace of its own.

import { expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { restoreSettings, settingsNote } from '../../src/host/changed-settings.ts'
import { enableForwarding, enableForwardingV6 } from '../../src/host/system.ts'

const timeoutMs = 60_000
const v4 = '/proc/sys/net/ipv4/ip_forward'
const v6 = '/proc/sys/net/ipv6/conf/all/forwarding'
const read = (path: string) => readFileSync(path, 'utf8').trim()

inOwnNetns(
  import.meta.path,
  () => {
    const withState = (work: (stateDir: string) => void) => {
      const stateDir = mkdtempSync(join(tmpdir(), 'srt-settings-'))
      try {
        for (const path of [v4, v6]) writeFileSync(path, '0')
        work(stateDir)
      } finally {
        rmSync(stateDir, { recursive: true })
      }
    }

    test('goal: forwarding of both families is as before, routes from routers included', () => {
      withState(stateDir => {
        Bun.spawnSync(['ip', 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'up1'])
        const acceptRa = '/proc/sys/net/ipv6/conf/up0/accept_ra'
        writeFileSync(acceptRa, '1')
        enableForwarding(settingsNote({ stateDir }))
        enableForwardingV6(settingsNote({ stateDir }))
        expect([read(v4), read(v6), read(acceptRa)]).toEqual(['1', '1', '2'])
        // A second start finds them on, and forgets nothing.
        enableForwarding(settingsNote({ stateDir }))
        enableForwardingV6(settingsNote({ stateDir }))
        expect(restoreSettings({ stateDir }).filter(({ problem }) => problem !== null)).toEqual([])
        expect([read(v4), read(v6), read(acceptRa)]).toEqual(['0', '0', '1'])
        expect(restoreSettings({ stateDir })).toEqual([])
      })
    })

    test('goal: what was on before, and what somebody has changed since, is left alone', () => {
      withState(stateDir => {
        writeFileSync(v4, '1')
        enableForwarding(settingsNote({ stateDir }))
        expect(restoreSettings({ stateDir })).toEqual([])
        expect(read(v4)).toBe('1')
        enableForwardingV6(settingsNote({ stateDir }))
        writeFileSync(v6, '0')
        expect(restoreSettings({ stateDir }).filter(({ path }) => path === v6)).toEqual([])
      })
    })

    test('goal: a note of an earlier boot changes nothing, nor does one that names another file', () => {
      withState(stateDir => {
        settingsNote({ stateDir, bootId: 'earlier' })({ path: v4, was: '0', set: '1' })
        writeFileSync(v4, '1')
        expect(restoreSettings({ stateDir })).toEqual([])
        expect(read(v4)).toBe('1')
        const target = join(stateDir, 'other')
        writeFileSync(target, '1')
        settingsNote({ stateDir, bootId: 'now' })({ path: target, was: '0', set: '1' })
        expect(restoreSettings({ stateDir, bootId: 'now' })).toEqual([])
        expect(read(target)).toBe('1')
      })
    })
  },
  { timeoutMs },
)
