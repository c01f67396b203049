// Goal: the system's trust store gets an authority that can sign for the appliance's own names, and no other.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemRandom } from '../../src/base/ids.ts'
import { bundleWith, bundleWithout, isHeldToDomain } from '../../src/guest/authority.plan.ts'
import { planClaim } from '../../src/guest/claim.plan.ts'
import { guestPaths } from '../../src/guest/paths.ts'
import { openAuthority } from '../../src/http/authority.ts'
import { gatewayCa, makeClaim } from '../rigs/guest-root.ts'

const publicKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJyYRtEcQ//c1azaVPtc4hxiZIPziSkIu26dzwyWS+B+'
const paths = guestPaths('')

async function authorityOf(...names: string[]): Promise<string> {
  const stateDir = mkdtempSync(join(tmpdir(), 'srt-authority-'))
  try {
    return (await openAuthority({ stateDir, names, nowMs: Date.now, random: systemRandom })).caPem
  } finally {
    rmSync(stateDir, { recursive: true, force: true })
  }
}

/** A root that openssl makes, with this line about its names. */
function opensslRoot(extension: string): string {
  const config = `[req]\ndistinguished_name=dn\nx509_extensions=ext\n[dn]\n[ext]\nbasicConstraints=critical,CA:true\n${extension}\n`
  const argv = ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
  const rest = ['-keyout', '/dev/null', '-subj', '/CN=a', '-days', '2', '-config', '/dev/stdin']
  const { exitCode, stdout, stderr } = Bun.spawnSync([...argv, ...rest], { stdin: Buffer.from(config) })
  if (exitCode !== 0) throw new Error(stderr.toString())
  return stdout.toString()
}

const claimWith = (ca: string | null, hostname = 'abcd1234.acme.agents.example') =>
  makeClaim(publicKey, { hostname, inference: { baseUrl: 'https://192.0.2.1/v1', model: 'm', ca, key: null } })

// Goal: what the appliance's own authority is by default is taken; every part of the host name but its own label and organization counts.
test('held to the domain of the instance', async () => {
  const ca = await authorityOf('agents.example', 'inference.agents.example', 'localhost', '192.0.2.1')
  expect(isHeldToDomain(claimWith(ca))).toBe(true)
  expect(isHeldToDomain(claimWith(ca, 'abcd1234.acme.other.example'))).toBe(false)
  expect(isHeldToDomain(claimWith(ca, 'abcd1234.acme.xagents.example'))).toBe(false)
  expect(isHeldToDomain(claimWith(ca, 'abcd1234.other.agents.example'))).toBe(false)
  expect(isHeldToDomain(claimWith(ca, 'abcd1234.acme.'))).toBe(false)
  expect(isHeldToDomain(claimWith(null))).toBe(false)
  expect(isHeldToDomain(claimWith(gatewayCa))).toBe(false)
})

// Goal: one foreign name, no name, or constraints that a program may ignore keep it out; so does one such certificate among good ones.
test('held to nothing, or to more', async () => {
  const own = await authorityOf('agents.example')
  const others = [
    await authorityOf('agents.example', 'github.example'),
    await authorityOf('example'),
    opensslRoot(''),
    opensslRoot('nameConstraints=permitted;DNS:agents.example'),
    opensslRoot('nameConstraints=critical,permitted;IP:192.0.2.0/255.255.255.0'),
    opensslRoot('nameConstraints=critical,excluded;DNS:github.example'),
    opensslRoot('nameConstraints=critical,permitted;DNS:agents.example,permitted;email:agents.example'),
    opensslRoot('nameConstraints=critical,permitted;DNS:.'),
  ]
  expect(isHeldToDomain(claimWith(opensslRoot('nameConstraints=critical,permitted;DNS:agents.example')))).toBe(true)
  for (const ca of others) {
    expect([ca, isHeldToDomain(claimWith(ca))]).toEqual([ca, false])
    expect(isHeldToDomain(claimWith(own + ca))).toBe(false)
  }
})

// Goal: a claim adds a good authority to store and environment, and a bad one to neither; nothing of the store is lost.
test('the store', async () => {
  const store = 'first\nlast\n'
  const ca = await authorityOf('agents.example')
  const plan = (claim: ReturnType<typeof claimWith>) =>
    new Map(planClaim(claim, paths, store).files.map(file => [file.path, file.content]))
  const good = plan(claimWith(ca))
  expect(good.get(paths.caBundle)).toBe(bundleWith(store, ca))
  expect(good.get(paths.caBundle)).toStartWith(store)
  expect(good.get(paths.caBundle)).toEndWith(ca)
  expect(good.get(paths.localCa)).toBe(ca)
  expect(good.get(paths.sshdEnvironment)).toContain(`"SSL_CERT_FILE=${paths.caBundle}"`)
  const bad = plan(claimWith(gatewayCa))
  expect([bad.has(paths.caBundle), bad.has(paths.localCa)]).toEqual([false, false])
  expect(bad.get(paths.sshdEnvironment)).not.toContain('CERT')
  expect(bad.get(paths.motd)).toContain(paths.gatewayCa)
  expect(bad.get(paths.gatewayCa)).toBe(gatewayCa)
})

// Goal: a second authority takes the place of the first, and the image's store is had back.
test('bundles', () => {
  const twice = bundleWith(bundleWith('a\n', 'one\n'), 'two\n')
  expect(twice).toBe(bundleWith('a\n', 'two\n'))
  expect(bundleWithout(twice)).toBe('a\n')
  expect(bundleWithout('a\n')).toBe('a\n')
})
