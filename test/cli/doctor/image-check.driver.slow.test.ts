// Goal: an image with one flipped bit, in whichever file, does not pass doctor; an untouched one does.

import { afterAll, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeBuilderImage } from '../../../scripts/rigs/build/image-directory.ts'
import { sampleParts, writeLaunchImage } from '../../../scripts/rigs/launch/launch-image.ts'
import { createClient } from '../../../src/cli/daemon-client.ts'
import { collectBuildFacts } from '../../../src/cli/doctor/builds.driver.ts'
import { collectGatewayFacts } from '../../../src/cli/doctor/gateway.driver.ts'
import { collectHostFacts } from '../../../src/cli/doctor/host.driver.ts'
import { checkMeasurement, checkWorkerImage } from '../../../src/cli/doctor/image-check.driver.ts'
import { defaultConfig } from '../../../src/config/load.ts'

const directories: string[] = []
afterAll(() => {
  for (const path of directories) rmSync(path, { recursive: true })
})

const rootHash = 'ab'.repeat(32)
const CONTENTS: Record<string, string> = {
  firmware: 'firmware',
  root: 'root file system',
  kernel: 'kernel',
  initrd: 'initrd',
  cmdline: `roothash=${rootHash} quiet`,
}

function imageOf(roles: readonly string[], more: object): string {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-image-'))
  directories.push(directory)
  const files = Object.fromEntries(
    roles.map(role => {
      const content = CONTENTS[role] ?? ''
      writeFileSync(join(directory, role), content)
      const sha256 = new Bun.CryptoHasher('sha256').update(content).digest('hex')
      return [role, { path: role, sha256, sizeBytes: content.length }]
    }),
  )
  writeFileSync(join(directory, 'manifest.json'), JSON.stringify({ schemaVersion: 1, rootHash, files, ...more }))
  return directory
}

const instanceImage = () =>
  imageOf(Object.keys(CONTENTS), {
    name: 'instance',
    inputsSha256: 'cd'.repeat(32),
    agent: { name: 'agent', version: '1' },
    kernelVersion: '6.1',
    launchDigests: { 'qemu-kvm/bios/EPYC-v4/2': '00'.repeat(48) },
  })
const workerImage = () =>
  imageOf(['root'], {
    name: 'inference',
    verity: { hashOffset: 4096 },
    program: { package: 'llama.cpp', version: '1' },
  })

function flipBit(directory: string, role: string): void {
  const bytes = Buffer.from(CONTENTS[role] ?? '')
  bytes[0] = (bytes[0] ?? 0) ^ 1
  writeFileSync(join(directory, role), bytes)
}

async function imageFact(directory: string) {
  const config = defaultConfig()
  const loaded = { file: null, warnings: [], config: { ...config, vm: { ...config.vm, image_dir: directory } } }
  const told: string[] = []
  const client = createClient(join(directory, 'admin.sock'))
  const facts = await collectHostFacts({
    loaded,
    stateDir: directory,
    client,
    progress: async text => void told.push(text),
    canary: false,
  })
  return { image: facts.image, told }
}

test('goal: an untouched instance image passes, and the wait is announced', async () => {
  const { image, told } = await imageFact(instanceImage())
  expect(image).toMatchObject({ ok: true, text: expect.stringContaining('all digests match') })
  expect(told).toEqual([expect.stringContaining('image')])
})

test.each(Object.keys(CONTENTS))('goal: a flipped bit in the %s fails, with file and digests', async role => {
  const directory = instanceImage()
  flipBit(directory, role)
  const { image } = await imageFact(directory)
  expect(image.ok).toBe(false)
  expect(image.text).toContain(`${join(directory, role)} was altered or damaged: its SHA-256 is `)
})

test('goal: a flipped bit in the root of the inference image fails', async () => {
  const directory = workerImage()
  expect(await checkWorkerImage(directory)).toContain('digest matches')
  flipBit(directory, 'root')
  await expect(checkWorkerImage(directory)).rejects.toMatchObject({ code: 'image.invalid' })
})

test('goal: doctor tells the launch digest of the configured shape, and other firmware than the image was measured with', async () => {
  const directory = instanceImage()
  const { vm } = defaultConfig()
  const of = (change: Partial<typeof vm>) => checkMeasurement({ ...vm, image_dir: directory, ...change })
  expect(await of({})).toBe(`bios/EPYC-v4/2: ${'00'.repeat(48)}`)
  await expect(of({ vcpus: 3 })).rejects.toMatchObject({ code: 'image.invalid' })
  await expect(of({ snp_boot: 'igvm' })).rejects.toMatchObject({ code: 'image.invalid' })
  const own = join(directory, 'own.fd')
  writeFileSync(own, CONTENTS.firmware ?? '')
  expect(await of({ firmware: own })).toContain('bios/EPYC-v4/2')
  writeFileSync(own, 'other')
  await expect(of({ firmware: own })).rejects.toMatchObject({ message: expect.stringContaining('vm.firmware') })
})

test('goal: doctor tells an IGVM file that is not that of the image, and of no other shape', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-image-'))
  directories.push(directory)
  const { manifest, igvm } = await writeLaunchImage(directory)
  const { vm } = defaultConfig()
  const of = (change: Partial<typeof vm>) =>
    checkMeasurement({ ...vm, image_dir: directory, snp_boot: 'igvm', vcpus: 2, ...change })
  const digest = manifest.launchDigests['qemu-kvm/igvm/EPYC-v4/2']
  expect([await of({}), await of({ igvm })]).toEqual([`igvm/EPYC-v4/2: ${digest}`, `igvm/EPYC-v4/2: ${digest}`])
  await expect(of({ igvm, vcpus: 1 })).rejects.toMatchObject({
    message: expect.stringContaining('its launch digest is'),
  })
  await expect(of({ igvm: join(directory, 'kernel') })).rejects.toMatchObject({ code: 'image.invalid' })
})

test('goal: doctor reads the builder image whole, by the shape of build VMs, and refuses an image of another kind', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-builder-'))
  directories.push(directory)
  const { manifest, disk } = await writeBuilderImage(directory, 3)
  const config = defaultConfig()
  const factsOf = (change: Partial<typeof config.builds>, builds = '127.0.0.1:8443') =>
    collectBuildFacts(
      {
        ...config,
        listen: { ...config.listen, builds },
        // IGVM file of instances: build VMs have their own.
        vm: { ...config.vm, snp_boot: 'igvm', igvm: '/none/instance.igvm', vcpus: 99 },
        builds: { ...config.builds, image_dir: directory, ...change },
      },
      directory,
    )
  const text = (said: string) => expect.stringContaining(said)
  expect(await factsOf({})).toEqual({
    image: { ok: true, text: text('all digests match') },
    measurement: { ok: true, text: `igvm/EPYC-v4/2: ${manifest.launchDigests['qemu-kvm/igvm/EPYC-v4/2']}` },
    authorities: null,
    freeGib: null,
  })
  mkdirSync(join(directory, 'vms'))
  expect((await factsOf({}))?.freeGib).toBeGreaterThanOrEqual(0)
  expect(await factsOf({ vcpus: 3 })).toMatchObject({ measurement: { ok: false, text: text('igvm/EPYC-v4/3') } })
  const fetching = { fetch_hosts: ['git.example'], fetch_ca_file: join(directory, 'nothing.pem') }
  expect(await factsOf(fetching)).toMatchObject({ authorities: { ok: false, text: text('nothing.pem') } })
  expect(await factsOf({}, '')).toBeNull()
  const instance = mkdtempSync(join(tmpdir(), 'strongroom-image-'))
  directories.push(instance)
  await writeLaunchImage(instance)
  for (const [image_dir, said] of [
    [instance, 'holds the image `instance`'],
    [join(directory, 'none'), 'read image manifest'],
  ] as const) {
    expect(await factsOf({ image_dir })).toMatchObject({ image: { ok: false, text: text(said) }, measurement: null })
  }
  writeFileSync(join(directory, 'root'), disk.fill(disk[9] === 7 ? 8 : 7, 9, 10))
  expect(await factsOf({})).toMatchObject({ image: { ok: false, text: text('was altered or damaged') } })
})

test('goal: doctor reads the image of the gateway, its model and its control key, wherever the gateway is placed', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-gateway-'))
  directories.push(directory)
  const { manifest } = await writeLaunchImage(directory, { ...sampleParts, name: 'inference' })
  const stateDir = join(directory, 'state')
  mkdirSync(stateDir)
  const client = createClient(join(stateDir, 'admin.sock'))
  const config = defaultConfig()
  const { worker } = config.inference
  const model = join(directory, 'm.gguf')
  const factsOf = (change: Partial<typeof config.inference>, listen = config.listen.inference) =>
    collectGatewayFacts(
      {
        ...config,
        listen: { ...config.listen, inference: listen },
        inference: { ...config.inference, worker: { ...worker, image_dir: directory, model_file: model }, ...change },
      },
      { stateDir, client },
    )
  const text = (said: string) => expect.stringContaining(said)
  expect(await factsOf({})).toEqual({
    placement: 'vm',
    image: { ok: true, text: text('all digests match') },
    measurement: { ok: true, text: `bios/EPYC-v4/2: ${manifest.launchDigests['qemu-kvm/bios/EPYC-v4/2']}` },
    model: { ok: false, text: text('m.gguf') },
    modelMib: null,
    controlKey: { kind: 'unmade', path: `${stateDir}/control.key` },
    shown: null,
  })
  writeFileSync(model, Buffer.alloc(1_048_577))
  writeFileSync(join(stateDir, 'strongroom.db'), '')
  expect(await factsOf({ vcpus: 3 })).toMatchObject({
    measurement: { ok: false, text: text('bios/EPYC-v4/3') },
    model: { ok: true, text: text('the daemon makes its disk') },
    modelMib: 2,
    controlKey: { kind: 'lost' },
  })
  writeFileSync(join(stateDir, 'control.key'), '', { mode: 0o600 })
  expect(await factsOf({})).toMatchObject({ controlKey: { kind: 'there', mode: 0o600, uid: process.getuid?.() } })
  const named = { worker: { ...worker, image_dir: directory, model_disk: 'none' } }
  expect(await factsOf(named)).toMatchObject({ model: { ok: false, text: text('strongroom model add') } })
  writeFileSync(join(directory, 'initrd'), Buffer.alloc(manifest.files.initrd.sizeBytes))
  expect(await factsOf({})).toMatchObject({ image: { ok: false, text: text('was altered') }, measurement: null })
  expect(await factsOf({}, '')).toEqual({ placement: 'off', user: null, worker: null })
  const noUser = { placement: 'host', worker: { ...worker, model_file: model, user: 'nobody-here' } } as const
  expect(await factsOf(noUser)).toMatchObject({ placement: 'host', user: { ok: false, text: text('nobody-here') } })
})
