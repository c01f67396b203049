// strongroom-verify in real VMs, claimed as a host does it.

import { describe, expect, test } from 'bun:test'
import { claimedGuest } from '../rigs/booted-guest.ts'
import { buildTreeImage } from '../rigs/image-build.ts'
import { until } from '../rigs/until.ts'

const timeoutMs = 900_000

/** The five lines without their reasons. */
function words(stdout: string): string[] {
  return stdout
    .trimEnd()
    .split('\n')
    .map(line => line.split(':')[0] ?? '')
}

describe('strongroom-verify', () => {
  // Goal: in a claimed VM the login user gets exactly five lines; a simulated platform fails the first and says so, and trusting its root
  // shows the rest, the lockout among it, as good.
  test(
    'in an instance',
    async () => {
      await using guest = await claimedGuest(await buildTreeImage('instance'))
      process.stdout.write(`timings: ${guest.timings.map(({ op, ms }) => `${op} ${ms} ms`).join(', ')}\n`)
      await guest.ssh('cat >root.pem', guest.rootPem)
      const verbose = await guest.ssh('strongroom-verify --verbose --trust-simulated-root root.pem')
      const found = await guest.ssh('strongroom-verify --trust-simulated-root root.pem')
      expect(found.stderr).toBe('')
      expect({ lines: words(found.stdout), detail: verbose.stdout }).toEqual({
        lines: [
          'FAIL         hardware attestation',
          'NOT CHECKED  TPM measurements',
          'PASS         host-key binding',
          'NOT CHECKED  inference provider attestation',
          'PASS         external-access lockout',
        ],
        detail: verbose.stdout,
      })
      expect(found.stdout.split('\n')[0]).toContain('SIMULATED: no hardware vouches for this VM')
      expect(found.exitCode).toBe(1)
      const distrusting = await guest.ssh('strongroom-verify --json')
      expect(distrusting.exitCode).toBe(1)
      expect(JSON.parse(distrusting.stdout)).toMatchObject({
        ok: false,
        simulated: true,
        lines: [{ outcome: 'fail' }, {}, { outcome: 'not-checked' }, {}, { outcome: 'not-checked' }],
      })
      expect((await guest.ssh('strongroom-verify --nonsense')).exitCode).toBe(2)
      // Boot stages, and nothing else, on the console that is the host's.
      const shown = guest
        .serial()
        .split('\n')
        .filter(line => line.includes('strongroom:'))
      expect(
        shown.map(line =>
          line
            .trim()
            .replace(/.*strongroom: /, '')
            .replace(/version .*/, 'version'),
        ),
      ).toEqual(['agent started, version', 'agent ready'])
      expect(guest.serial()).not.toMatch(/sshd|Accepted|"level"|claim/)
      const logs = await guest.ssh('ls /run/strongroom/log; cat /run/strongroom/claim.json')
      expect(logs.stdout).toBe('')
    },
    timeoutMs,
  )

  // Goal: the staging image has a shell of root's on the console, and its last line fails for exactly that.
  test(
    'in a staging VM',
    async () => {
      await using guest = await claimedGuest(await buildTreeImage('staging'))
      guest.type('echo "I am $(id -u)"')
      await until('the console answers', 30_000, () => guest.serial().includes('I am 0'))
      await guest.ssh('cat >root.pem', guest.rootPem)
      const found = await guest.ssh('strongroom-verify --trust-simulated-root root.pem')
      expect(found.stdout.trimEnd().split('\n').at(-1)).toMatch(
        /^FAIL {9}external-access lockout: consoles: .*reads \/dev\/ttyS0/,
      )
      expect(found.exitCode).toBe(1)
    },
    timeoutMs,
  )
})
