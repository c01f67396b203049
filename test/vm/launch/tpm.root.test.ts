// The real driver starts, finds and ends a VM's swtpm, with a program in QEMU's place. Real taps and processes, in a
// namespace of their own.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { link } from '../../../scripts/rigs/guest/two-guests.ts'
import { firstOwnUid } from '../../../scripts/rigs/launch/own-uids.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createNft } from '../../../src/host/network/nft.ts'
import { createVmNamespace } from '../../../src/host/network/vm-namespace.ts'
import { identifyProcess } from '../../../src/linux/process/running.ts'
import { processesByUid } from '../../../src/linux/users.ts'
import { openStore } from '../../../src/store/db.ts'
import { recordResource, resourceOf, resourcesOf, strikeResource } from '../../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm, vmById } from '../../../src/store/ledger/vm.query.ts'
import type { Vm } from '../../../src/store/ledger/vm.table.ts'
import { gpuTaker } from '../../../src/vm/gpu/gpu.driver.ts'
import { nativeHashes, openImageFile } from '../../../src/vm/launch/image-file.driver.ts'
import { createJailFiles } from '../../../src/vm/launch/jail-files.driver.ts'
import { startJailed } from '../../../src/vm/launch/jailed.driver.ts'
import { listTpms } from '../../../src/vm/launch/tpm.driver.ts'
import { vmPaths } from '../../../src/vm/launch.plan.ts'
import { findLeaks } from '../../../src/vm/machine/leaks.driver.ts'
import { VmDriver } from '../../../src/vm/machine/vm.driver.ts'

const timeoutMs = 180_000
const firstUid = firstOwnUid()
const patienceMs = 60_000

/** Sends CMD_GET_CAPABILITY to the TPM behind the descriptor of its command line, then lives on. */
const askingQemu = `#!/bin/bash
fd=$(printf '%s\\n' "$@" | sed -n 's/^socket,id=tpm,fd=//p')
printf '\\0\\0\\0\\1' >&"$fd"
echo "tpm says $(timeout 60 head -c 8 <&"$fd" | od -An -tx1 | tr -d ' \\n')"
exec -a "$0" tail -n 0 -f "$0" -- "$@"
`

inOwnNetns(
  import.meta.path,
  () => {
    const dir = mkdtempSync('/tmp/tpm-test-')
    chmodSync(dir, 0o711)
    const stateDir = join(dir, 'state')
    const image = join(dir, 'root.img')
    mkdirSync(join(stateDir, 'vms'), { recursive: true, mode: 0o711 })
    writeFileSync(image, 'image', { mode: 0o644 })
    const programs = join(dir, 'programs')
    mkdirSync(programs, { mode: 0o711 })
    const qemu = join(programs, 'qemu')
    writeFileSync(qemu, askingQemu)
    chmodSync(qemu, 0o755)
    /** The shell in QEMU's place sees its tools besides. */
    const jailFiles = {
      ...createJailFiles(),
      ofQemu: async (program: string) => ({ program, files: ['/usr', '/bin', '/lib', '/lib64', dirname(program)] }),
    }
    const store = openStore(':memory:')
    const built: Vm[] = []
    const namespace = createVmNamespace({ ...link, name: 'srt-launch' })
    beforeAll(() => namespace.open())
    const create = (changes: { qemu?: string; swtpm?: string } = {}) =>
      new VmDriver({
        db: store.ledger.db,
        clock: systemClock,
        random: systemRandom,
        log: silentLogger,
        network: { sync: async () => {}, remove: async () => {}, rest: async () => {} },
        stateDir,
        qemu: changes.qemu ?? qemu,
        swtpm: () => changes.swtpm ?? '/usr/bin/swtpm',
        jailFiles,
        start: startJailed,
        uids: { min: firstUid, max: firstUid + 7 },
        groups: [],
        platform: { kind: 'tcg' },
        kernels: null,
        takeGpus: gpuTaker(),
        launcher: {
          prepare: async () => ({
            firmwareSha256: '00'.repeat(32),
            firmware: openImageFile(image),
            kernel: openImageFile(image),
            initrd: openImageFile(image),
            cmdline: '',
            document: { kernelSha256: toHex(nativeHashes.sha256(readFileSync(image))) } as never,
            workload: null,
            signed: {} as never,
            [Symbol.dispose]: () => {},
          }),
        },
        scratchLimits: { mibPerS: 0, iops: 0 },
        image: () => ({
          firmware: image,
          root: image,
          kernel: image,
          initrd: image,
          cmdline: '',
          manifest: {} as never,
        }),
        nextHop: '169.254.88.1',
        nextHopV6: 'fd73:7472:6f6e:67::1',
        namespace,
        mtuBytes: 1500,
        tapPrefix: 'sr',
        consoleBytesMax: 65_536,
        stopGraceMs: 0,
      })
    const driver = create()
    const newVm = (): Vm => {
      const [id, nowMs] = [newUuid(), Date.now()]
      insertVm(store.ledger.db, { id, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs })
      moveVm(store.ledger.db, { id, from: 'waiting', to: 'launching', nowMs, address: `10.88.0.${built.length + 2}` })
      const vm = vmById(store.ledger.db, id) as Vm
      built.push(vm)
      return vm
    }
    const recordOf = (vm: Vm, kind: 'tpm' | 'uid' | 'qemu') => resourceOf(store.ledger.db, vm.id, kind)?.name ?? ''
    const tpmOf = (vm: Vm) => Number(recordOf(vm, 'tpm').split(':')[0])
    const nft = createNft({ table: 'strongroom', log: silentLogger, netns: namespace.netns })
    const leaks = async () =>
      (
        await findLeaks({
          db: store.ledger.db,
          nft,
          namespace,
          stateDir,
          tapPrefix: 'sr',
          pools: { v4: '10.88.0.0/24', v6: null },
          uids: { min: firstUid, max: firstUid + 7 },
        })
      ).filter(({ kind }) => kind === 'tpm' || kind === 'uid')
    afterAll(async () => {
      for (const vm of built) await driver.release(vm, { keepDirectory: false })
      rmSync(dir, { recursive: true, force: true })
    })

    test('runs under the user of its VM, reaches nothing but its state and QEMU, and goes with the VM', async () => {
      // Goal: QEMU reaches it; it has no privileges, looser limits or files of root; its row stands between user id and
      // QEMU.
      const vm = newVm()
      await driver.build(vm)
      const paths = vmPaths(stateDir, vm.id)
      const log = () => readFileSync(paths.qemuLog, 'utf8')
      await until('QEMU has asked', patienceMs, () => /tpm says [0-9a-f]{16}/.test(log()))
      const kinds = resourcesOf(store.ledger.db, vm.id).map(({ kind }) => kind)
      expect(kinds.slice(0, 3)).toEqual(['qemu', 'tpm', 'uid'])
      const pid = tpmOf(vm)
      const uid = Number(recordOf(vm, 'uid'))
      expect(identifyProcess(pid)?.argv[0]).toBe('/usr/bin/swtpm')
      expect(processesByUid().get(uid)).toContain(pid)
      const status = readFileSync(`/proc/${pid}/status`, 'utf8')
      for (const line of ['CapEff:\t0000000000000000', 'CapBnd:\t0000000000000000', 'NoNewPrivs:\t1', 'Seccomp:\t2'])
        expect(status).toContain(line)
      const limits = readFileSync(`/proc/${pid}/limits`, 'utf8').replace(/ +/g, ' ')
      for (const line of ['Max file size 1048576 1048576', 'Max open files 32 32', 'Max processes 4 4'])
        expect(limits).toContain(line)
      const { uid: owner, size } = statSync(paths.tpmState)
      expect([owner, statSync(paths.directory).uid, statSync(paths.tpmLog).uid]).toEqual([uid, 0, 0])
      expect(size).toBeLessThan(1_048_576)
      expect(await leaks()).toEqual([])
      await driver.release(vm, { keepDirectory: false })
      expect([identifyProcess(pid), existsSync(paths.directory), listTpms(stateDir)]).toEqual([null, false, []])
    })

    test('is taken up by another daemon, whatever of it is on record', async () => {
      // Goal: a daemon that was killed between a start of swtpm or QEMU and its record finds both, and starts nothing
      // twice.
      const vm = newVm()
      await driver.build(vm)
      const before = [recordOf(vm, 'tpm'), recordOf(vm, 'qemu')]
      for (const kind of ['tpm', 'qemu'] as const)
        recordResource(store.ledger.db, { vmId: vm.id, kind, name: `unspawned:${vm.id}`, nowMs: 1 })
      await create().build(vm)
      expect([recordOf(vm, 'tpm'), recordOf(vm, 'qemu')]).toEqual(before)
      expect(listTpms(stateDir)).toHaveLength(1)
    })

    test('that was started before a crash, without a QEMU, leaves nothing', async () => {
      // Goal: after a kill between swtpm and QEMU the next build starts a new TPM, and a release without a build ends
      // the old one.
      const vm = newVm()
      await expect(create({ qemu: 'not\0a path' }).build(vm)).rejects.toThrow()
      recordResource(store.ledger.db, { vmId: vm.id, kind: 'tpm', name: `unspawned:${vm.id}`, nowMs: 1 })
      const first = listTpms(stateDir).map(({ pid }) => pid)
      await create({ qemu: 'not\0a path' })
        .build(vm)
        .catch(() => {})
      const second = listTpms(stateDir).map(({ pid }) => pid)
      expect(
        second.filter(pid => first.includes(pid) && !built.slice(0, -1).some(item => tpmOf(item) === pid)),
      ).toEqual([])
      recordResource(store.ledger.db, { vmId: vm.id, kind: 'tpm', name: `unspawned:${vm.id}`, nowMs: 1 })
      await driver.release(vm, { keepDirectory: false })
      expect(listTpms(stateDir).filter(({ pid }) => !built.some(item => tpmOf(item) === pid))).toEqual([])
      expect(existsSync(vmPaths(stateDir, vm.id).directory)).toBe(false)
    })

    test('is a leak when nobody has it on record, and missing when it has died', async () => {
      // Goal: doctor --leaks names both; the pid of a TPM that has died is not signalled when somebody else has it.
      const vm = newVm()
      await driver.build(vm)
      const name = recordOf(vm, 'tpm')
      strikeResource(store.ledger.db, { vmId: vm.id, kind: 'tpm' })
      expect(await leaks()).toMatchObject([{ kind: 'tpm', name, detail: 'unknown' }])
      recordResource(store.ledger.db, { vmId: vm.id, kind: 'tpm', name, nowMs: 2 })
      const nowMs = Date.now()
      moveVm(store.ledger.db, { id: vm.id, from: 'launching', to: 'booting', nowMs, address: vm.address })
      moveVm(store.ledger.db, { id: vm.id, from: 'booting', to: 'running', nowMs, address: vm.address })
      process.kill(tpmOf(vm), 'SIGKILL')
      await until('it is gone', patienceMs, () => identifyProcess(tpmOf(vm)) === null)
      expect(await leaks()).toMatchObject([{ kind: 'tpm', name, detail: 'missing', vm: vm.id }])
      const stranger = Bun.spawn(['sleep', '1000'])
      const ticks = identifyProcess(stranger.pid)?.startTicks ?? 0
      recordResource(store.ledger.db, { vmId: vm.id, kind: 'tpm', name: `${stranger.pid}:${ticks}`, nowMs: 3 })
      await driver.release(vm, { keepDirectory: false })
      expect(identifyProcess(stranger.pid)?.startTicks).toBe(ticks)
      stranger.kill()
      await stranger.exited
    })

    test('that is not there or loads no libraries is named, and no QEMU starts without it', async () => {
      // Goal: the failure of the VM says which program to install.
      const absent = join(dir, 'absent')
      await expect(create({ swtpm: absent }).build(newVm())).rejects.toThrow(`${absent} is not installed`)
      await expect(create({ swtpm: qemu }).build(newVm())).rejects.toThrow(`list the libraries of ${qemu}`)
      for (const vm of built.slice(-2)) expect(recordOf(vm, 'qemu')).toBe('')
    })
  },
  { timeoutMs },
)
