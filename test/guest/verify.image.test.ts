// strongroom-verify in a VM whose image has a shell on the console and which has neither TPM nor scratch disk, claimed
// as a host does it. A released image is in test/e2e/instance.image.test.ts.

import { expect, test } from 'bun:test'
import { buildCachedImage } from '../../scripts/rigs/build/image-build.ts'
import { until } from '../../scripts/rigs/until.ts'
import { claimedGuest } from '../rigs/guest/booted-guest.ts'

// Goal: the agent of a real image gives the fields of `hello` and no more; the staging image has a
// shell of root's on the console, and its last line fails for exactly that; a VM without TPM says that
// there is none to check; without a scratch disk, memory is used and the console says so.
test('strongroom-verify in a staging VM', async () => {
  await using guest = await claimedGuest(await buildCachedImage('staging'))
  process.stdout.write(`timings: ${guest.timings.map(({ op, ms }) => `${op} ${ms} ms`).join(', ')}\n`)
  expect(guest.hello).toEqual({
    protocol: 2,
    version: '0.1.0',
    bootId: expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
    boxKey: expect.stringMatching(/^[A-Za-z0-9+/]{43}=$/),
    sshHostKey: expect.stringMatching(/^ssh-ed25519 [A-Za-z0-9+/]{68}$/),
    claimId: null,
    platform: 'none',
  })
  const stages = guest
    .serial()
    .split('\n')
    .flatMap(line => /strongroom: (.*)/.exec(line.trim())?.[1] ?? [])
  expect(stages[0]).toBe('no scratch disk, there is none: memory instead')
  guest.type('echo "I am $(id -u)"')
  await until('the console answers', 120_000, () => guest.serial().includes('I am 0'))
  await guest.ssh('cat >root.pem', guest.rootPem)
  const found = await guest.ssh('strongroom-verify --trust-simulated-root root.pem')
  const lines = found.stdout.trimEnd().split('\n')
  expect(lines.map(line => line.split(':')[0])).toEqual([
    'FAIL         hardware attestation',
    'NOT CHECKED  TPM measurements',
    'PASS         host-key binding',
    'NOT CHECKED  inference provider attestation',
    'FAIL         external-access lockout',
  ])
  expect(lines.at(-1)).toMatch(/^FAIL {9}external-access lockout: consoles: .*reads \/dev\/ttyS0/)
  expect(found.exitCode).toBe(1)
}, 900_000)
