// strongroom-verify in real VMs, claimed as a host does it.

import { describe, expect, test } from 'bun:test'
import { buildCachedImage } from '../../scripts/rigs/build/image-build.ts'
import { until } from '../../scripts/rigs/until.ts'
import { decodeReceipt } from '../../src/attest/receipt/receipt.ts'
import { reportDataOf } from '../../src/attest/receipt/statement.ts'
import { decodeTpmEvidence, verifyTpmEvidence } from '../../src/attest/tpm/evidence.ts'
import { fromBase64Url, toBase64Url } from '../../src/base/bytes.ts'
import { claimedGuest } from '../rigs/guest/booted-guest.ts'

const timeoutMs = 900_000

/** The five lines without their reasons. */
function words(stdout: string): string[] {
  return stdout
    .trimEnd()
    .split('\n')
    .map(line => line.split(':')[0] ?? '')
}

describe('strongroom-verify', () => {
  // Goal: in a claimed VM the login user gets exactly five lines; a simulated platform fails the first and says so;
  // with its root trusted the rest, lockout included, is good.
  test(
    'in an instance',
    async () => {
      await using guest = await claimedGuest(await buildCachedImage('instance'))
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
      ).toEqual(['no scratch disk, there is none: memory instead', 'agent started, version', 'agent ready'])
      expect(guest.serial()).not.toMatch(/sshd|Accepted|"level"|claim/)
      const logs = await guest.ssh('ls /run/strongroom/log; cat /run/strongroom/claim.json')
      expect(logs.stdout).toBe('')
    },
    timeoutMs,
  )

  // Goal: with the host's TPM the second line says what was checked and that it proves nothing, with the root trusted
  // or not; a quote for another nonce fails; a dead TPM is reported within seconds, and the other lines are as before.
  test(
    'in an instance with a TPM of the host',
    async () => {
      await using guest = await claimedGuest(await buildCachedImage('instance'), { tpm: true })
      process.stdout.write(`timings: ${guest.timings.map(({ op, ms }) => `${op} ${ms} ms`).join(', ')}\n`)
      await guest.ssh('cat >root.pem', guest.rootPem)
      const trusting = 'strongroom-verify --trust-simulated-root root.pem'
      const found = await guest.ssh(`${trusting} --json`)
      const [, tpm] = JSON.parse(found.stdout).lines
      expect(tpm).toMatchObject({ name: 'TPM measurements', outcome: 'fail' })
      expect(tpm.reason).toBe(
        'vtpm:host-untrusted: the host runs this TPM and decides what it says, so it proves nothing; quote signature, its key, nonce, PCR values, log and measured command line are good',
      )
      const outcomes = tpm.checks.map((check: { name: string; outcome: string }) => `${check.outcome} ${check.name}`)
      expect(outcomes).toEqual([
        'fail vtpm-binding',
        'pass tpm-quote-signature',
        'pass tpm-quote-format',
        'pass tpm-quote-nonce',
        'pass tpm-quote-pcrs',
        'pass vtpm-attestation-key',
        'pass tpm-event-log',
        'pass tpm-measured',
      ])
      expect((await guest.ssh('strongroom-verify')).stdout.split('\n')[1]).toStartWith(
        'FAIL         TPM measurements: vtpm:host-untrusted: ',
      )

      // The agent's quote over our nonce, and the claim receipt's quote over its statement.
      const nonce = new Uint8Array(32).fill(0x11)
      const reply = await guest.ssh(
        `printf '%s\\n' ${toBase64Url(nonce)} | timeout 20 python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect("/run/strongroom/tpm.sock")
s.sendall(sys.stdin.buffer.read())
print(s.makefile().readline())'`,
      )
      const bytes = fromBase64Url(JSON.parse(reply.stdout).evidence) ?? new Uint8Array(0)
      const wrongOver = async (evidence: Uint8Array, over: Uint8Array) => {
        const binding = async () => Promise.reject(new Error('there is no SVSM'))
        const read = decodeTpmEvidence(evidence)
        const { checks } = await verifyTpmEvidence(read, { nonce: over, measured: 'any', binding, activate: 'offline' })
        return checks.filter(check => check.outcome !== 'pass').map(check => check.name)
      }
      expect(await wrongOver(bytes, nonce)).toEqual(['vtpm-binding', 'vtpm-attestation-key'])
      expect(await wrongOver(bytes, new Uint8Array(32).fill(0x12))).toEqual([
        'vtpm-binding',
        'tpm-quote-nonce',
        'vtpm-attestation-key',
      ])
      const receipt = decodeReceipt((await guest.ssh('cat /run/strongroom/receipt.json')).stdout)
      const kept = receipt.evidence.tpm ?? new Uint8Array(0)
      expect(await wrongOver(kept, reportDataOf(receipt.statement))).toEqual(['vtpm-binding', 'vtpm-attestation-key'])
      expect(await wrongOver(kept, nonce)).toEqual(['vtpm-binding', 'tpm-quote-nonce', 'vtpm-attestation-key'])
      const denied = await guest.ssh('cat /dev/tpm0 /dev/tpmrm0')
      expect(denied.stderr.match(/Permission denied/g)).toHaveLength(2)

      guest.killTpm()
      const startedMs = performance.now()
      const { stdout } = await guest.ssh(trusting)
      const ms = Math.round(performance.now() - startedMs)
      process.stdout.write(`${ms} ms after the end of swtpm: ${stdout.split('\n')[1]}\n`)
      expect(stdout.split('\n')[1]).toStartWith(
        'FAIL         TPM measurements: tpm: this VM has a TPM, but it gives no quote: ',
      )
      expect(ms).toBeLessThan(30_000)
      expect([words(stdout)[2], words(stdout)[4]]).toEqual([
        'PASS         host-key binding',
        'PASS         external-access lockout',
      ])
    },
    timeoutMs,
  )

  // Goal: the staging image has a shell of root's on the console, and its last line fails for exactly that.
  test(
    'in a staging VM',
    async () => {
      await using guest = await claimedGuest(await buildCachedImage('staging'))
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
