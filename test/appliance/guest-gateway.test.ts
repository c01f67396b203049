// Which gateway a claim names, out of the configuration, the ledger and the image on disk.

import { expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Check } from '@sinclair/typebox/value'
import { sampleParts, writeLaunchImage } from '../../scripts/rigs/launch/launch-image.ts'
import { simulatedPlatform } from '../../scripts/rigs/launch/simulated-platform.ts'
import { composeGuestGateway } from '../../src/appliance/guest-gateway.ts'
import { toPem } from '../../src/attest/encoding/pem.ts'
import { toHex } from '../../src/base/bytes.ts'
import { silentLogger } from '../../src/base/log.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { InferenceGateway } from '../../src/contract/vm/inference-gateway.ts'
import { openStore } from '../../src/store/db.ts'
import { insertGateway, moveGateway } from '../../src/store/ledger/gateway.query.ts'
import { recordLaunch } from '../../src/store/ledger/launch.query.ts'
import { insertVm } from '../../src/store/ledger/vm.query.ts'

const operatorKey = new Uint8Array(48).fill(7)
const guestCaPem = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n'
const worker = (imageDir: string) => `[inference.worker]\nmodel_file = "/m.gguf"\nimage_dir = "${imageDir}"\n`
const upstream = (name: string) =>
  `[[inference.upstreams]]\nname = "${name}"\nurl = "https://${name}.example/v1"\nmodels = ["m"]\n`

type Host = { readonly toml: string; readonly platform?: 'tcg' | 'snp'; readonly serving?: string }

/** What claims of such a host name; `serving`: the measurement of the VM that serves. */
async function claimed({ toml, platform = 'tcg', serving }: Host) {
  const verdict = parseConfig(toml, 'test.toml')
  if (!verdict.ok) throw new Error(JSON.stringify(verdict))
  const store = openStore(':memory:')
  try {
    if (serving !== undefined) {
      const { db } = store.ledger
      const size = { vcpus: 2, memoryMib: 512 }
      insertVm(db, { id: 'gateway', hostId: store.hostId, image: 'inference', ...size, network: 'gateway', nowMs: 1 })
      const digest = { measurement: serving, hostData: '00'.repeat(32), operatorKey: toHex(operatorKey) }
      recordLaunch(db, { vmId: 'gateway', document: '', workload: '', ...digest, launchedAtMs: 2 })
      insertGateway(db, { vmId: 'gateway', hostId: store.hostId, shape: 's', nowMs: 3 })
      moveGateway(db, { vmId: 'gateway', from: ['starting'], to: 'serving', nowMs: 4 })
    }
    const { authority } = await simulatedPlatform('genoa')
    const found = await composeGuestGateway({
      config: verdict.config,
      store,
      guestCaPem,
      operatorKey: { digest: operatorKey },
      engine: { platform },
      log: silentLogger,
      simulatedPlatform: async () => {
        if (platform === 'snp') throw new Error('hardware has no simulated root')
        return { root: authority.root }
      },
    })()
    expect(Check(InferenceGateway, found.gateway)).toBe(true)
    return found
  } finally {
    store.close()
  }
}

async function withImage<T>(run: (image: { dir: string; measurement: string }) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'srt-guest-gateway-'))
  try {
    const dir = join(directory, 'image')
    mkdirSync(dir)
    const { manifest } = await writeLaunchImage(dir, { ...sampleParts, name: 'inference' })
    return await run({ dir, measurement: manifest.launchDigests['qemu-kvm/bios/EPYC-v4/2'] ?? '' })
  } finally {
    rmSync(directory, { recursive: true })
  }
}

test('goal: with a worker in a VM it is that of the image, the operator and every upstream outside, in one order', async () => {
  await withImage(async ({ dir, measurement }) => {
    const toml = worker(dir) + upstream('far') + upstream('away')
    const { ark, ask, asvk } = (await simulatedPlatform('genoa')).authority.root
    const simulatedRoot = [ark, ask, asvk].map(der => toPem(der, 'CERTIFICATE')).join('')
    const measured = { measurements: [measurement], operatorKey: toHex(operatorKey) }
    const kind = 'attested' as const
    const outside = ['away', 'far'].map(name => `${name}=https://${name}.example`)
    const { baseUrl, address, gateway } = await claimed({ toml })
    expect([baseUrl, address]).toEqual(['https://inference.strongroom.internal:8442/v1', '169.254.88.1'])
    expect(gateway).toEqual({ kind, ...measured, outside, simulatedRoot })
    expect((await claimed({ toml, platform: 'snp' })).gateway).toEqual({
      kind,
      ...measured,
      outside,
      simulatedRoot: null,
    })
  })
})

test('goal: while one VM serves and the next boots another image, both are named; without an image the one that serves', async () => {
  await withImage(async ({ dir, measurement }) => {
    const serving = '0a'.repeat(48)
    const measurementsOf = async (host: Host) => {
      const { gateway } = await claimed(host)
      return gateway.kind === 'attested' ? gateway.measurements : gateway.kind
    }
    const both = [serving, measurement].toSorted()
    expect(await measurementsOf({ toml: worker(dir), serving })).toEqual(both)
    expect(await measurementsOf({ toml: worker(dir), serving: measurement })).toEqual([measurement])
    expect(await measurementsOf({ toml: worker('/nonexistent'), serving })).toEqual([serving])
    expect(claimed({ toml: worker('/nonexistent') })).rejects.toThrow('/nonexistent')
  })
})

test('goal: an image that the operator has announced beside the present one is named before it is in force', async () => {
  await withImage(async ({ dir, measurement }) => {
    mkdirSync(`${dir}.next`)
    const measurementsOf = async () => {
      const { gateway } = await claimed({ toml: worker(`${dir}/`) })
      return gateway.kind === 'attested' ? gateway.measurements : gateway.kind
    }
    // Half copied: it is not named, and keeps no instance from being made.
    expect(await measurementsOf()).toEqual([measurement])
    const cmdline = `${sampleParts.cmdline} quiet`
    const { manifest } = await writeLaunchImage(`${dir}.next`, { ...sampleParts, name: 'inference', cmdline })
    const next = manifest.launchDigests['qemu-kvm/bios/EPYC-v4/2'] ?? ''
    expect(next).not.toBe(measurement)
    expect(await measurementsOf()).toEqual([measurement, next].toSorted())
  })
})

test('goal: what nothing vouches for is named so, with its reason', async () => {
  const onHost = 'placement = "host"\n'
  expect((await claimed({ toml: `[inference]\n${onHost}` })).gateway).toEqual({
    kind: 'unattested',
    why: 'host',
    ca: guestCaPem,
  })
  expect((await claimed({ toml: upstream('far') })).gateway).toEqual({
    kind: 'unattested',
    why: 'no-worker',
    ca: guestCaPem,
  })
  const elsewhere = await claimed({ toml: '[instances]\ninference_base_url = "https://far.example/v1"\n' })
  expect(elsewhere).toEqual({
    baseUrl: 'https://far.example/v1',
    address: null,
    gateway: { kind: 'unattested', why: 'elsewhere', ca: null },
  })
  const none = await claimed({ toml: '[listen]\ninference = ""\n' })
  expect(none).toEqual({ baseUrl: '', address: null, gateway: { kind: 'none' } })
})
