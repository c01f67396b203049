// Goal: nothing is called admitted that the allowlist does not name exactly, and its digest is that of its bytes.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toHex } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { encodeAllowlist, type WorkloadCandidate } from '../../../src/contract/vm/allowlist.ts'
import { readAllowlist } from '../../../src/inference/attestation/allowlist-file.ts'
import { createWorkloads, sha256File, type Workloads } from '../../../src/inference/attestation/workloads.ts'

let dir = ''
let executable = ''
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'workloads-test-'))
  executable = join(dir, 'executable')
  writeFileSync(executable, 'abc')
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

// FIPS 180-2, appendix B.1.
const digestOfAbc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
const command = ['strongroom', 'serve']
const worker = { imageDigest: new Uint8Array(32).fill(7), command: ['/usr/bin/llama-server', '--threads', '2'] }
const candidate: WorkloadCandidate = { workload: 'inference-worker', ...worker }
const create = async (options: { hasWorker?: boolean; allowlistFile?: string } = {}) => {
  const source = options.allowlistFile ?? join(dir, 'none.json')
  const bytes = readAllowlist(source)
  return createWorkloads({
    executableDigest: await sha256File(executable),
    command,
    hasWorker: options.hasWorker ?? true,
    allowlist: bytes === null ? null : { bytes, source },
    log: silentLogger,
  })
}

/** The configuration's, once the worker has asked. */
async function derivedWith(first: WorkloadCandidate) {
  const workloads = await create()
  expect(workloads.admit(first).ok).toBe(true)
  return workloads
}

describe('description', () => {
  // Goal: the attestation gets all five, in the contract's order, each with what really runs.
  test('all five once the worker is admitted', async () => {
    const workloads = await create()
    expect(() => workloads.describe()).toThrow('inference-worker has not been admitted yet')
    expect(workloads.admit(candidate).ok).toBe(true)
    const described = workloads.describe()
    expect(described.workloads.map(item => item.workload)).toEqual([
      'gateway',
      'inference-router',
      'inference-worker',
      'metrics-collector',
      'cluster-state-metrics',
    ])
    for (const item of described.workloads) {
      const isWorker = item.workload === 'inference-worker'
      expect(item.target).toBe(item.workload)
      expect(toHex(item.imageDigest)).toBe(isWorker ? toHex(worker.imageDigest) : digestOfAbc)
      expect(item.command).toEqual(isWorker ? worker.command : command)
    }
    expect(described.allowlistDigest).toEqual(workloads.inForce().digest)
  })

  // Goal: a refusal after an admission takes the receipt away again; there is no partial description.
  test('a worker that is refused later is attested no more', async () => {
    const workloads = await create()
    workloads.admit(candidate)
    workloads.bind()
    expect(workloads.admit({ ...candidate, command: ['/bin/sh'] }).ok).toBe(false)
    const failure = caught(() => workloads.describe())
    expect(failure.code).toBe('attestation_unavailable')
    expect(failure.message).toContain('inference-worker')
  })

  // Without an allowlist of the operator's, keys that have vouched for one model vouch for no other.
  for (const [name, binds] of [
    ['serves', workloads => workloads.bind()],
    ['is described', workloads => void workloads.describe()],
  ] as [string, (workloads: Workloads) => void][]) {
    test(`goal: a worker that ${name} binds those after it`, async () => {
      const workloads = await derivedWith({ ...candidate, command: ['a file half copied'] })
      expect(workloads.admit(candidate).ok).toBe(true)
      binds(workloads)
      const { digest } = workloads.inForce()
      expect(workloads.admit({ ...candidate, command: ['another model'] }).ok).toBe(false)
      expect(workloads.admit({ ...candidate, imageDigest: new Uint8Array(32).fill(8) }).ok).toBe(false)
      expect(workloads.admit(candidate).ok).toBe(true)
      expect(workloads.inForce().digest).toEqual(digest)
    })
  }

  // Goal: only the worker is waited for; nothing else gets in with it.
  test('another workload never comes into the allowlist', async () => {
    const workloads = await create()
    expect(workloads.admit({ ...candidate, workload: 'gateway' }).ok).toBe(false)
  })

  // Goal: what is measured is the file that runs, also where the operator has approved several.
  test('the digest of the executable is not taken from the allowlist', async () => {
    const path = join(dir, 'several.json')
    const { allowlist } = (await derivedWith(candidate)).inForce()
    const others = allowlist.workloads.map(row => ({
      ...row,
      images: [{ digest: '00'.repeat(32), commands: [['/bin/other']] }, ...row.images],
    }))
    writeFileSync(path, encodeAllowlist({ schemaVersion: 2, workloads: others }))
    const workloads = await create({ allowlistFile: path })
    expect(workloads.admit(candidate).ok).toBe(true)
    expect(toHex(workloads.executableDigest)).toBe(digestOfAbc)
    expect(workloads.describe().workloads.map(workload => toHex(workload.imageDigest))).toContain(digestOfAbc)
  })

  // Goal: without a built-in worker there is nothing to attest, and nothing else becomes one.
  test('no worker, no description', async () => {
    const workloads = await create({ hasWorker: false })
    expect(workloads.admit(candidate).ok).toBe(false)
    expect(workloads.inForce().allowlist.workloads.map(row => row.workload)).not.toContain('inference-worker')
    expect(caught(() => workloads.describe()).code).toBe('attestation_unavailable')
  })
})

describe('the file', () => {
  // Goal: anyone can compute the digest with sha256sum.
  test("the digest is that of the file's bytes, whitespace included", async () => {
    const path = join(dir, 'allowlist.json')
    const derived = (await derivedWith(candidate)).inForce()
    writeFileSync(path, encodeAllowlist(derived.allowlist))
    const read = (await create({ allowlistFile: path })).inForce()
    expect(toHex(read.digest)).toBe(toHex(derived.digest))
    expect(toHex(read.digest)).toBe(new Bun.CryptoHasher('sha256').update(await Bun.file(path).bytes()).digest('hex'))
    writeFileSync(path, `${encodeAllowlist(derived.allowlist)}\n`)
    expect((await create({ allowlistFile: path })).inForce().digest).not.toEqual(derived.digest)
  })

  test('goal: a file of version 1 stops the start, with its path and what to write instead', async () => {
    const path = join(dir, 'old.json')
    writeFileSync(path, '{"schemaVersion":1,"workloads":[]}')
    const start = create({ allowlistFile: path })
    await expect(start).rejects.toThrow(
      `the allowlist ${path}: /schemaVersion: 1 let every image run with every command`,
    )
    await expect(start).rejects.toThrow('each image with its own commands')
  })

  // Goal: what the operator wrote binds, whatever the configuration says.
  test('the file overrules the configuration', async () => {
    const path = join(dir, 'strict.json')
    const approved = { ...candidate, command: ['/usr/bin/llama-server', '--threads', '1'] }
    writeFileSync(path, encodeAllowlist((await derivedWith(approved)).inForce().allowlist))
    const workloads = await create({ allowlistFile: path })
    expect(workloads.admit(candidate).ok).toBe(false)
    expect(workloads.admit(approved).ok).toBe(true)
    writeFileSync(path, encodeAllowlist({ schemaVersion: 2, workloads: [] }))
    expect(caught((await create({ allowlistFile: path })).describe).message).toContain('gateway')
  })

  for (const [name, text] of [
    ['no JSON', '{'],
    ['another version', '{"schemaVersion":3,"workloads":[]}'],
    ['version 1', '{"schemaVersion":1,"workloads":[]}'],
    [
      'an unknown workload',
      `{"schemaVersion":2,"workloads":[{"workload":"x","images":[{"digest":"${digestOfAbc}","commands":[["a"]]}]}]}`,
    ],
    [
      'an empty command',
      JSON.stringify({
        schemaVersion: 2,
        workloads: [{ workload: 'gateway', images: [{ digest: digestOfAbc, commands: [[]] }] }],
      }),
    ],
    ['a further field', '{"schemaVersion":2,"workloads":[],"allowAll":true}'],
    ['a field twice', '{"schemaVersion":2,"workloads":[1],"workloads":[]}'],
  ] as const) {
    test(`goal: ${name} stops the start instead of admitting anything`, async () => {
      const path = join(dir, 'wrong.json')
      writeFileSync(path, text)
      const failure = await create({ allowlistFile: path }).then(
        () => null,
        (error: unknown) => error,
      )
      expect(failure).toBeInstanceOf(Fault)
      expect(failure).toMatchObject({ code: 'config.file' })
    })
  }
})

function caught(action: () => unknown): Fault {
  try {
    action()
  } catch (error) {
    if (error instanceof Fault) return error
    throw error
  }
  throw new Error('it did not fail')
}
