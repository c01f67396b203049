// Goal: the disk is opened by workload.json alone, once per boot, and a failure is a message that names the model. The
// kernel is a directory here; boot.image.test.ts has a real one.

import { afterAll, describe, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { Fault } from '../../src/base/fault.ts'
import type { WorkloadModel } from '../../src/contract/vm/workload.ts'
import { type ModelsDeps, modelPath, openModel } from '../../src/enclave/models.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-enclave-models-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const model: WorkloadModel = {
  name: 'tiny',
  rootHash: 'ab'.repeat(32),
  hashOffset: (2 + 3) * 4096,
  fileSha256: 'cd'.repeat(32),
  fileBytes: 2 * 4096 + 1,
  golden: null,
}
const mapping = `model-${model.rootHash}`

type Kernel = ModelsDeps & {
  /** Commands and mounts, in order. */
  readonly done: string[][]
  readonly fails: Set<string>
}

/** A VM with these disks: names and serials. */
function kernel(disks: Record<string, string> = { vda: 'root', vdb: 'model' }): Kernel {
  const root = mkdtempSync(join(dir, 'root-'))
  const write = (path: string, text: string) => {
    mkdirSync(dirname(`${root}/${path}`), { recursive: true })
    writeFileSync(`${root}/${path}`, text)
  }
  for (const [name, serial] of Object.entries(disks)) write(`sys/block/${name}/serial`, serial)
  write('sys/block/dm-0/dm/name', 'root\n')
  write('proc/self/mountinfo', '1 0 254:0 / / ro - erofs /dev/dm-0 ro\n')
  const done: string[][] = []
  const fails = new Set<string>()
  const act = (argv: string[]) => {
    done.push(argv)
    const name = argv.slice(0, 2).join(' ')
    if (fails.has(name)) throw new Fault('host.command_failed', `${name}: EIO`)
  }
  return {
    root,
    done,
    fails,
    clock: createManualClock(),
    diskWaitMs: 0,
    run: async argv => {
      act([...argv])
      if (argv[1] === 'open') write('sys/block/dm-1/dm/name', `${mapping}\n`)
      if (argv[1] === 'close') rmSync(`${root}/sys/block/dm-1`, { recursive: true, force: true })
      return { stdout: '', stderr: '' }
    },
    mountReadOnly: (device, target, type) => {
      act(['mount', type, device, target])
      writeFileSync(`${target}/model.gguf`, '')
      truncateSync(`${target}/model.gguf`, model.fileBytes)
      write(
        'proc/self/mountinfo',
        `1 0 254:0 / / ro - erofs /dev/dm-0 ro\n2 1 254:1 / ${target} ro - erofs ${device} ro\n`,
      )
    },
  }
}

async function faultOf(work: Promise<unknown>): Promise<Fault> {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  )
  if (error instanceof Fault) return error
  throw new Error(`no fault: ${error}`)
}

describe('opening', () => {
  // Goal: the host decides no parameter: all of them are here, and the superblock is not among them.
  test('the whole command, and the mount', async () => {
    const vm = kernel()
    await openModel(model, vm)
    const disk = `${vm.root}/dev/vdb`
    expect(vm.done).toEqual([
      [
        ...['veritysetup', 'open', '--no-superblock', '--format=1', '--hash=sha256', '--salt=-'],
        ...['--data-block-size=4096', '--hash-block-size=4096', '--data-blocks=5', `--hash-offset=${6 * 4096}`],
        ...['--', disk, mapping, disk, 'ab'.repeat(32)],
      ],
      ['mount', 'erofs', `${vm.root}/dev/dm-1`, `${vm.root}/run/models/tiny`],
    ])
    expect(modelPath(vm.root, model)).toBe(`${vm.root}/run/models/tiny/model.gguf`)
    expect(existsSync(modelPath(vm.root, model))).toBe(true)
  })

  test('goal: a process that starts again in the same boot changes nothing', async () => {
    const vm = kernel()
    await openModel(model, vm)
    await openModel(model, vm)
    expect(vm.done.length).toBe(2)
  })

  test('goal: a process that died between mapping and mount is followed by one that mounts', async () => {
    const vm = kernel()
    vm.fails.add('mount erofs').add('veritysetup close')
    await faultOf(openModel(model, vm))
    vm.fails.clear()
    vm.done.length = 0
    await openModel(model, vm)
    expect(vm.done.map(argv => argv[0])).toEqual(['mount'])
  })

  test('goal: other disks are left alone, whatever they are called', async () => {
    const vm = kernel({ vda: 'model', vdb: 'scratch', vdc: 'models' })
    await openModel(model, vm)
    expect(vm.done[0]?.at(-2)).toBe(`${vm.root}/dev/vda`)
  })
})

describe('failures', () => {
  test('goal: a VM without the disk says so', async () => {
    const vm = kernel({ vda: 'root', vdb: 'scratch' })
    const fault = await faultOf(openModel(model, vm))
    expect([fault.code, fault.message]).toEqual([
      ...['host.unsupported', 'open the disk of model tiny: this VM has no disk with the serial model'],
    ])
    expect(vm.done.filter(argv => argv[1] !== 'close')).toEqual([])
  })

  for (const step of ['veritysetup open', 'mount erofs']) {
    // Goal: a changed byte where the kernel looks first is a message, and the next attempt begins anew.
    test(`${step} fails, and works when it is tried again`, async () => {
      const vm = kernel()
      vm.fails.add(step)
      const fault = await faultOf(openModel(model, vm))
      expect([fault.code, fault.message]).toEqual([
        ...['host.command_failed', `open the disk of model tiny: ${step}: EIO`],
      ])
      expect(readdirSync(`${vm.root}/sys/block`)).not.toContain('dm-1')
      vm.fails.clear()
      await openModel(model, vm)
      expect(vm.done.at(-1)?.[0]).toBe('mount')
    })
  }

  test('goal: a mapping that does not appear is not mounted', async () => {
    const vm = kernel()
    const fault = await faultOf(openModel(model, { ...vm, run: async () => ({ stdout: '', stderr: '' }) }))
    expect(fault.message).toContain('veritysetup created no mapping')
    expect(vm.done).toEqual([])
  })

  test('goal: a file of another size, or none, is not served', async () => {
    for (const [spoil, problem] of [
      [(path: string) => truncateSync(path, 5), '5 bytes, not 8193 as in workload.json'],
      [(path: string) => rmSync(path), 'ENOENT'],
    ] as const) {
      const vm = kernel()
      await openModel(model, vm)
      spoil(modelPath(vm.root, model))
      expect((await faultOf(openModel(model, vm))).message).toContain(problem)
    }
  })

  test('goal: an offset that does not follow from the size is refused before anything is mapped', async () => {
    for (const hashOffset of [4096, model.hashOffset + 1, model.hashOffset + 4096]) {
      const vm = kernel()
      const fault = await faultOf(openModel({ ...model, hashOffset }, vm))
      expect(fault.message).toContain(`hashOffset ${hashOffset} does not follow from 8193 bytes`)
      expect(vm.done).toEqual([])
    }
  })
})
