// Goal: the system's trust store gets an authority that can sign for the name of the gateway, for no other and for no address.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemRandom } from '../../src/base/ids.ts'
import { guestGatewayName } from '../../src/contract/agent.ts'
import { bundleWith, bundleWithout, isHeldToGateway } from '../../src/guest/authority.plan.ts'
import { planClaim } from '../../src/guest/claim.plan.ts'
import { guestPaths } from '../../src/guest/paths.ts'
import { openAuthority } from '../../src/http/authority.ts'
import { gatewayCa, makeClaim } from '../rigs/guest-root.ts'

const publicKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJyYRtEcQ//c1azaVPtc4hxiZIPziSkIu26dzwyWS+B+'
const paths = guestPaths('')

/** What the appliance makes for instances. */
async function ownAuthority(kind: 'guests' | 'clients' = 'guests'): Promise<string> {
  const stateDir = mkdtempSync(join(tmpdir(), 'srt-authority-'))
  try {
    const names = [guestGatewayName]
    return (await openAuthority({ kind, stateDir, names, nowMs: Date.now, random: systemRandom })).caPem
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

const claimWith = (ca: string | null) =>
  makeClaim(publicKey, {
    inference: { baseUrl: `https://${guestGatewayName}/v1`, address: '192.0.2.1', model: 'm', ca, key: null },
  })

const name = `permitted;DNS:${guestGatewayName}`
const addresses = 'excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0'
const root = (...lines: string[]) => opensslRoot(`nameConstraints=critical,${lines.join(',')}`)

// Goal: what the appliance makes for instances is taken, and so is what openssl writes for the same.
test('held to the gateway', async () => {
  expect(isHeldToGateway(claimWith(await ownAuthority()))).toBe(true)
  expect(isHeldToGateway(claimWith(root(name, addresses)))).toBe(true)
  expect(isHeldToGateway(claimWith(null))).toBe(false)
  expect(isHeldToGateway(claimWith(gatewayCa))).toBe(false)
})

// Goal: one foreign name, no name, an address, or constraints that a program may ignore keep it out; so does one such certificate among good ones.
test('held to nothing, or to more', async () => {
  const own = await ownAuthority()
  const others = [
    // Says nothing of addresses.
    await ownAuthority('clients'),
    root(name),
    root(name, 'excluded;IP:0.0.0.0/0.0.0.0'),
    root(name, 'excluded;IP:10.0.0.0/255.0.0.0,excluded;IP:0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0'),
    root(name, 'permitted;IP:192.0.2.0/255.255.255.0', addresses),
    root(name, 'permitted;DNS:github.example', addresses),
    root('permitted;DNS:strongroom.internal', addresses),
    root('permitted;DNS:.', addresses),
    root(name, 'permitted;email:agents.example', addresses),
    root(addresses),
    root('excluded;DNS:github.example', addresses),
    opensslRoot(''),
    opensslRoot(`nameConstraints=${name},${addresses}`),
  ]
  for (const ca of others) {
    expect([ca, isHeldToGateway(claimWith(ca))]).toEqual([ca, false])
    expect(isHeldToGateway(claimWith(own + ca))).toBe(false)
  }
})

// Goal: a claim adds a good authority to store and environment, and a bad one to neither; nothing of the store is lost.
test('the store', async () => {
  const store = 'first\nlast\n'
  const ca = await ownAuthority()
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
