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
import type { ImageManifest } from '../../src/contract/vm/image.ts'
import { InferenceGateway } from '../../src/contract/vm/inference-gateway.ts'
import { openStore } from '../../src/store/db.ts'
import { insertGatewayVm, moveGatewayVm } from '../../src/store/ledger/gateway-vm.query.ts'
import { recordLaunch } from '../../src/store/ledger/launch.query.ts'
import { insertVm } from '../../src/store/ledger/vm.query.ts'

const operatorKey = new Uint8Array(48).fill(7)
const guestCaPem = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n'
const worker = (imageDir: string) => `[inference.worker]\nmodel_file = "/m.gguf"\nimage_dir = "${imageDir}"\n`
const upstream = (name: string) =>
  `[[inference.upstreams]]\nname = "${name}"\nurl = "https://${name}.example/v1"\nmodels = ["m"]\n`

type Host = {
  readonly toml: string
  readonly platform?: 'tcg' | 'snp'
  readonly serving?: string
  /** Why workload.json cannot be derived. */
  readonly problem?: string
}

/** A text that names the image, in place of a whole workload.json. */
const workloadFor = ({ rootHash, files }: ImageManifest) => `workload of ${rootHash} ${files.cmdline.sha256}`
const digestOf = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('hex')

/** Gateway that claims of such a host name; `serving`: measurement of the VM that serves. */
async function claimed({ toml, platform = 'tcg', serving, problem }: Host) {
  const verdict = parseConfig(toml, 'test.toml')
  if (!verdict.ok) throw new Error(JSON.stringify(verdict))
  const store = openStore(':memory:')
  try {
    if (serving !== undefined) {
      const { db } = store.ledger
      const size = { vcpus: 2, memoryMib: 512 }
      insertVm(db, { id: 'gateway', hostId: store.hostId, image: 'inference', ...size, network: 'gateway', nowMs: 1 })
      const digest = { measurement: serving, hostData: '0d'.repeat(32), operatorKey: toHex(operatorKey) }
      recordLaunch(db, { vmId: 'gateway', document: '', workload: '', ...digest, launchedAtMs: 2 })
      insertGatewayVm(db, { vmId: 'gateway', hostId: store.hostId, shape: 's', nowMs: 3 })
      moveGatewayVm(db, { vmId: 'gateway', from: ['starting'], to: 'serving', nowMs: 4 })
    }
    const { authority } = await simulatedPlatform('genoa')
    const found = await composeGuestGateway({
      config: verdict.config,
      store,
      guestCaPem,
      operatorKey: { digest: operatorKey },
      engine: { platform },
      workloads: {
        textFor: manifest => {
          if (problem !== undefined) throw new Error(problem)
          return workloadFor(manifest)
        },
      },
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

async function withImage<T>(
  run: (image: { dir: string; measurement: string; workload: string }) => Promise<T>,
): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'srt-guest-gateway-'))
  try {
    const dir = join(directory, 'image')
    mkdirSync(dir)
    const { manifest } = await writeLaunchImage(dir, { ...sampleParts, name: 'inference' })
    const workload = digestOf(workloadFor(manifest))
    return await run({ dir, workload, measurement: manifest.launchDigests['qemu-kvm/bios/EPYC-v4/2'] ?? '' })
  } finally {
    rmSync(directory, { recursive: true })
  }
}

test('goal: with a worker in a VM it is that of the image, the operator and every upstream outside, in one order', async () => {
  await withImage(async ({ dir, measurement, workload }) => {
    const toml = worker(dir) + upstream('far') + upstream('away')
    const { ark, ask, asvk } = (await simulatedPlatform('genoa')).authority.root
    const simulatedRoot = [ark, ask, asvk].map(der => toPem(der, 'CERTIFICATE')).join('')
    const measured = { measurements: [measurement], operatorKey: toHex(operatorKey), workloads: [workload] }
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

test('goal: claims pin the workload.json of the VM that serves, of its successor, and of the announced image', async () => {
  await withImage(async ({ dir, workload }) => {
    const workloadsOf = async (host: Omit<Host, 'toml'>) => {
      const { gateway } = await claimed({ toml: worker(dir), ...host })
      return gateway.kind === 'attested' ? gateway.workloads : gateway.kind
    }
    const serving = '0a'.repeat(48)
    expect(await workloadsOf({})).toEqual([workload])
    expect(await workloadsOf({ serving })).toEqual(['0d'.repeat(32), workload].toSorted())
    mkdirSync(`${dir}.next`)
    const cmdline = `${sampleParts.cmdline} quiet`
    const { manifest } = await writeLaunchImage(`${dir}.next`, { ...sampleParts, name: 'inference', cmdline })
    const next = digestOf(workloadFor(manifest))
    expect(await workloadsOf({ serving })).toEqual(['0d'.repeat(32), workload, next].toSorted())
    // The disk of the model is still being made.
    expect(await workloadsOf({ serving, problem: 'no disk' })).toEqual(['0d'.repeat(32)])
    expect(await workloadsOf({ problem: 'no disk' })).toBeUndefined()
  })
})

test('goal: settings that show more to the host are named in the claim; the default configuration has none', async () => {
  await withImage(async ({ dir }) => {
    const allowOf = async (inference: string) => {
      const { gateway } = await claimed({ toml: `[inference]\n${inference}\n${worker(dir)}` })
      return gateway.kind === 'attested' ? gateway.allow : gateway.kind
    }
    expect(await allowOf('')).toBeUndefined()
    expect(await allowOf('usage_labels = true')).toEqual(['usage-labels'])
    expect(await allowOf('pad_streams = "off"')).toEqual(['no-padding'])
    expect(await allowOf('responses_kept_s = 60\nusage_labels = true')).toEqual(['usage-labels', 'kept-responses'])
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
