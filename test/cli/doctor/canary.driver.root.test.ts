// Goal: a canary says of this very host whether guests run: it runs under software emulation; what hangs, refuses or
// is missing becomes a finding within its time, and nothing of it stays. Needs root and QEMU.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { firstOwnUid } from '../../../scripts/rigs/launch/own-uids.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { bootCanary } from '../../../src/cli/doctor/canary.driver.ts'
import { canaryCheck } from '../../../src/cli/doctor/canary.plan.ts'
import { groupsOfVms } from '../../../src/cli/doctor/vm-identity.driver.ts'
import type { Platform } from '../../../src/config/schema.ts'
import { listWithArgument } from '../../../src/linux/process.ts'
import { createJailFiles } from '../../../src/vm/launch/jail-files.driver.ts'

const qemu = '/usr/bin/qemu-system-x86_64'
const dir = mkdtempSync(join(tmpdir(), 'srt-canary-'))
const made = join(dir, 'made')
const { TMPDIR } = process.env
beforeAll(() => {
  chmodSync(dir, 0o755)
  mkdirSync(made)
  // Others on this host have canaries, too.
  process.env.TMPDIR = made
})
afterAll(() => {
  if (TMPDIR === undefined) delete process.env.TMPDIR
  else process.env.TMPDIR = TMPDIR
  rmSync(dir, { recursive: true })
})

/** The shell in QEMU's place sees its tools besides. */
const ofScript = async (program: string) => ({ program, files: ['/usr', '/bin', '/lib', '/lib64', dirname(program)] })

const boot = (platform: Platform, program = qemu, timeoutMs = 40_000) => {
  const groups = groupsOfVms(platform)
  const vm = {
    uid: firstOwnUid(),
    groups,
    platform,
    vcpus: 1,
    memoryMib: 64,
    diskGib: 0,
    devices: 0,
    systemd: true,
  } as const
  const jailFiles = program.startsWith(dir) ? { ofQemu: ofScript } : createJailFiles()
  return bootCanary({ qemu: program, platform, vm, jailFiles, timeoutMs })
}

function programOf(name: string, text: string): string {
  const path = join(dir, name)
  writeFileSync(path, `#!/bin/sh\n${text}\n`)
  chmodSync(path, 0o755)
  return path
}

describe.skipIf(skipUnless(process.getuid?.() === 0, 'a canary needs root'))('as root', () => {
  describe.skipIf(skipUnless(existsSync(qemu), 'a canary needs QEMU'))('with QEMU', () => {
    test('goal: under software emulation it runs', async () => {
      expect(await boot('tcg')).toMatchObject({ kind: 'ran' })
    })

    test('goal: under KVM, where there is any, it runs or the finding says what to do, in time', async () => {
      const startedMs = performance.now()
      const facts = await boot('kvm', qemu, 1_500)
      expect(performance.now() - startedMs).toBeLessThan(30_000)
      const { result, remedy } = canaryCheck(facts, 'kvm')
      if (facts.kind === 'ran') expect([result, remedy]).toEqual(['PASS', null])
      else expect([result, typeof remedy]).toEqual(['FAIL', 'string'])
    })
  })

  test('goal: one that hangs is ended, and nothing of it stays', async () => {
    const deaf = await boot('tcg', programOf('deaf', 'trap "" TERM INT HUP; while :; do sleep 0.05; done'), 300)
    expect(deaf).toMatchObject({ kind: 'silent', isGone: true })
    // The child of bwrap ends with it, a moment later.
    await until('nothing of it is left', 30_000, () => listWithArgument(join(dir, 'deaf')).length === 0)
  })

  test('goal: a QEMU that refuses says why, one that is missing too', async () => {
    expect(await boot('tcg', programOf('refuses', 'echo no such machine >&2; exit 1'))).toEqual({
      kind: 'failed',
      text: 'no such machine',
    })
    expect(await boot('tcg', programOf('mute', 'exit 3'))).toEqual({
      kind: 'failed',
      text: 'QEMU ended with exit code 3',
    })
    expect(await boot('tcg', '/nonexistent/qemu')).toMatchObject({
      kind: 'failed',
      text: expect.stringContaining('/nonexistent/qemu'),
    })
    const much = await boot('tcg', programOf('talks', 'yes | head --bytes=1000000 | tr "\\\\n" x >&2; exit 1'))
    expect(much.kind === 'failed' && much.text.length).toBe(400)
  })

  test('goal: no file is left', () => {
    expect(tmpdir()).toBe(made)
    expect(readdirSync(made)).toEqual([])
  })
})
