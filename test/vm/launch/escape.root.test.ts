// A taken-over QEMU: a program in its place, started by the real driver, attacks root's files, its neighbour and its
// own limits. Real taps and processes, in a namespace of their own.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { link } from '../../../scripts/rigs/guest/two-guests.ts'
import { killFound } from '../../../scripts/rigs/kill.ts'
import { firstOwnUid } from '../../../scripts/rigs/launch/own-uids.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createNft } from '../../../src/host/network/nft.ts'
import { createVmNamespace } from '../../../src/host/network/vm-namespace.ts'
import { listWithUuid } from '../../../src/linux/process.ts'
import { processesByUid } from '../../../src/linux/users.ts'
import { openStore } from '../../../src/store/db.ts'
import { listResources, recordResource, resourceOf } from '../../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm, vmById } from '../../../src/store/ledger/vm.query.ts'
import type { Vm } from '../../../src/store/ledger/vm.table.ts'
import { gpuTaker } from '../../../src/vm/gpu/gpu.driver.ts'
import { nativeHashes, openImageFile } from '../../../src/vm/launch/image-file.driver.ts'
import { createJailFiles } from '../../../src/vm/launch/jail-files.driver.ts'
import { startJailed } from '../../../src/vm/launch/jailed.driver.ts'
import { vmPaths } from '../../../src/vm/launch.plan.ts'
import { findLeaks } from '../../../src/vm/machine/leaks.driver.ts'
import { VmDriver } from '../../../src/vm/machine/vm.driver.ts'

const timeoutMs = 180_000
const firstUid = firstOwnUid()
const patienceMs = 60_000
/**
 * Without CAP_SYS_RESOURCE (bit 24) a parent sets a child's score, but the child may set it back (fs/proc/base.c,
 * __set_oom_adj).
 */
const mayFixOom =
  ((BigInt(`0x${/CapEff:\s*(\w+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]}`) >> 24n) & 1n) === 1n
if (!mayFixOom) process.stderr.write('not run: lowering oom_score_adj in an escape; this root lacks CAP_SYS_RESOURCE\n')

/** `attack NAME COMMAND…` says in the log whether the command worked. Then it lives on, as QEMU does:
 * it follows a file, with the arguments that identify it. It cannot open them as files, and must not say so in a log
 * that a test has just emptied. The jail has no /dev. */
const escapedQemu = `#!/bin/bash
attack() { if said=$(timeout 60 bash -c "$2" 2>&1); then echo "$1: DONE"; else echo "$1: refused"; fi; }
grep -E '^(Uid|Gid|Groups|CapEff|CapBnd|NoNewPrivs):' /proc/self/status | tr -s '\\t ' ' '
grep -E 'core|locked|processes|open files|file size' /proc/self/limits | tr -s ' '
echo "oom $(cat /proc/self/oom_score_adj)"
. "$(dirname "$0")/attacks"
echo finished
exec -a "$0" tail -n 0 -f "$0" -- "$@" 2>&-
`

inOwnNetns(
  import.meta.path,
  () => {
    const dir = mkdtempSync('/tmp/escape-test-')
    chmodSync(dir, 0o711)
    const stateDir = join(dir, 'state')
    const database = join(stateDir, 'strongroom.db')
    const image = join(dir, 'root.img')
    mkdirSync(join(stateDir, 'vms'), { recursive: true, mode: 0o711 })
    writeFileSync(image, 'image', { mode: 0o644 })
    const programs = join(dir, 'programs')
    mkdirSync(programs, { mode: 0o711 })
    const qemu = join(programs, 'qemu')
    writeFileSync(qemu, escapedQemu)
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
    const create = (uidCount = 8, min = firstUid) =>
      new VmDriver({
        db: store.ledger.db,
        clock: systemClock,
        random: systemRandom,
        log: silentLogger,
        network: { sync: async () => {}, remove: async () => {}, rest: async () => {} },
        stateDir,
        qemu,
        swtpm: () => null,
        jailFiles,
        start: startJailed,
        uids: { min, max: min + uidCount - 1 },
        groups: [],
        platform: { kind: 'tcg' },
        kernels: null,
        takeGpus: gpuTaker(),
        launcher: {
          prepare: async () => ({
            firmware: openImageFile(image),
            kernel: openImageFile(image),
            initrd: openImageFile(image),
            cmdline: '',
            firmwareSha256: '',
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
    const build = async (attacks: string, by = driver, id = newUuid(), modelDisk?: string): Promise<Vm> => {
      writeFileSync(join(programs, 'attacks'), `export dir=${vmPaths(stateDir, id).directory}\n${attacks}`, {
        mode: 0o644,
      })
      const nowMs = Date.now()
      const spec = { image: 'instance', vcpus: 1, memoryMib: 512, ...(modelDisk === undefined ? {} : { modelDisk }) }
      insertVm(store.ledger.db, { id, hostId: store.hostId, ...spec, nowMs })
      moveVm(store.ledger.db, { id, from: 'waiting', to: 'launching', nowMs, address: `10.88.0.${built.length + 2}` })
      const vm = vmById(store.ledger.db, id) as Vm
      built.push(vm)
      await by.build(vm)
      await until('the attacks end', patienceMs, () => logOf(vm).includes('finished'))
      return vm
    }
    const pathsOf = (vm: Vm) => vmPaths(stateDir, vm.id)
    const logOf = (vm: Vm) => readFileSync(pathsOf(vm).qemuLog, 'utf8')
    const pidOf = (vm: Vm) => Number(resourceOf(store.ledger.db, vm.id, 'qemu')?.name.split(':')[0])
    const uidOf = (vm: Vm) => Number(resourceOf(store.ledger.db, vm.id, 'uid')?.name)
    afterAll(async () => {
      for (const vm of built) await driver.release(vm, { keepDirectory: false })
      rmSync(dir, { recursive: true, force: true })
    })

    test('root empties no file that an escape points it to, and waits for no FIFO', async () => {
      // Goal: two attacks that once worked fail: a link at qemu.log made root empty a database, FIFOs at the console
      // stalled all file access.
      writeFileSync(database, Buffer.alloc(2 * 1_048_576, 7), { mode: 0o600 })
      const vm = await build(
        [
          `attack link 'ln -sfn ${database} $dir/qemu.log'`,
          `attack fifo 'mkfifo $dir/console.log $dir/console.log.1'`,
          `attack create 'touch $dir/x'`,
          `attack remove 'rm -f $dir/qmp.sock && ! [ -e $dir/qmp.sock ] && ls $dir'`,
          `attack open 'chmod 777 $dir'`,
          `attack move 'mv $dir $dir.away'`,
          `attack look 'ls $dir'`,
        ].join('\n'),
      )
      driver.boundLog(vm)
      expect(statSync(database).size).toBe(2 * 1_048_576)
      expect(logOf(vm)).not.toContain('DONE')
      expect(logOf(vm).match(/refused/g)?.length).toBe(7)
      const { uid, mode } = statSync(pathsOf(vm).directory)
      expect([uid, mode & 0o777]).toEqual([0, 0o700])
      // QEMU may still write its inherited log, which is root's and is bounded.
      writeFileSync(pathsOf(vm).qemuLog, Buffer.alloc(1_048_577), { flag: 'a' })
      driver.boundLog(vm)
      expect(statSync(pathsOf(vm).qemuLog).size).toBe(0)
    })

    test('an escape meets its neighbour, the images and root as a stranger', async () => {
      // Goal: no signal, memory or socket of another VM; no write to an image that all VMs boot; no root; no looser
      // limits.
      const neighbour = await build('true')
      const peer = `/proc/${pidOf(neighbour)}`
      const vm = await build(
        [
          `attack control 'kill -0 $$ && cat ${qemu}'`,
          `attack signal 'kill -0 ${pidOf(neighbour)}'`,
          `attack memory 'head -c 1 < ${peer}/mem'`,
          `attack maps 'cat ${peer}/maps | grep .'`,
          `attack environment 'cat ${peer}/environ | grep .'`,
          `attack descriptors 'ls ${peer}/fd | grep .'`,
          `attack socket '[ -w ${pathsOf(neighbour).qmp} ] || [ -w $dir/qmp.sock ]'`,
          `attack list 'ls ${stateDir}/vms ${stateDir}'`,
          `attack image 'echo x >> ${image} || mv ${image} ${image}.x'`,
          `attack root 'setpriv --reuid=0 true || setpriv --clear-groups true'`,
          `attack files 'ulimit -n 4096'`,
          ...(mayFixOom ? [`attack oom 'echo 0 > /proc/self/oom_score_adj'`] : []),
        ].join('\n'),
      )
      expect(uidOf(vm)).not.toBe(uidOf(neighbour))
      const log = logOf(vm)
      expect(log).toContain('control: DONE')
      expect(log.match(/\w+: DONE/g)).toEqual(['control: DONE'])
      expect(log.match(/refused/g)?.length).toBe(mayFixOom ? 11 : 10)
      const status = readFileSync(`/proc/${pidOf(vm)}/status`, 'utf8')
      for (const name of ['Uid', 'Gid']) expect(status).toContain(`${name}:${`\t${uidOf(vm)}`.repeat(4)}\n`)
      for (const line of [
        'Uid: 65534 65534 65534 65534',
        'Gid: 65534 65534 65534 65534',
        'CapEff: 0000000000000000',
        'CapBnd: 0000000000000000',
        'NoNewPrivs: 1',
        'Max core file size 0 0',
        'Max locked memory 0 0',
        'Max processes 129 129',
        'Max open files 1024 1024',
        'Max file size 67108864 67108864',
        'oom 500',
      ])
        expect(log).toContain(line)
      expect(log).toMatch(/^Groups: ?$/m)
    })

    test('an escape reads the disk of its model, and changes nothing on it', async () => {
      // Goal: one gateway VM cannot spoil the next one's model: the disk's descriptor is read-only, and no path leads
      // to a writable one.
      const models = join(stateDir, 'models')
      mkdirSync(models, { mode: 0o700 })
      const disk = join(models, 'model.erofs')
      writeFileSync(disk, 'model', { mode: 0o400 })
      const vm = await build(
        [
          `fd=$(for f in /proc/self/fd/*; do [ "$(readlink $f)" != ${disk} ] || echo \${f##*/}; done)`,
          `attack read '[ "$(cat <&'$fd')" = model ]'`,
          `attack write 'echo x >&'$fd`,
          `attack reopen 'echo x > /proc/self/fd/'$fd`,
          `attack path 'cat ${disk} || echo x > ${disk}'`,
          `attack mode 'chmod 666 /proc/self/fd/'$fd`,
        ].join('\n'),
        driver,
        newUuid(),
        disk,
      )
      expect([...(logOf(vm).match(/\w+: (?:DONE|refused)/g) ?? [])]).toEqual([
        ...['read: DONE', 'write: refused', 'reopen: refused', 'path: refused', 'mode: refused'],
      ])
      expect(readFileSync(disk, 'utf8')).toBe('model')
    })

    test('no uid is given out while anything runs under it, and what outlives QEMU ends with the VM', async () => {
      // Goal: a child that an escape left behind shares no uid with a later VM, and holds nothing when the VM is gone.
      const vm = await build('setsid sleep 1000 <&- >&- 2>&- &')
      const uid = uidOf(vm)
      await until('a child runs', patienceMs, () => (processesByUid().get(uid)?.length ?? 0) === 2)
      await driver.release(vm, { keepDirectory: false })
      expect(processesByUid().get(uid)).toBeUndefined()
      expect(existsSync(pathsOf(vm).directory)).toBe(false)
      expect(listResources(store.ledger.db, 'uid').map(row => row.vmId)).not.toContain(vm.id)

      // No other test uses these: under an init that does not reap, ended processes take their uid for ever.
      const min = firstUid + 32
      const stranger = Bun.spawn(['setpriv', `--reuid=${min + 2}`, '--clear-groups', 'sleep', '1000'])
      await until('the stranger runs', patienceMs, () => processesByUid().has(min + 2))
      const narrow = create(3, min)
      const uids = [uidOf(await build('true', narrow)), uidOf(await build('true', narrow))]
      expect(uids.toSorted((a, b) => a - b)).toEqual([min, min + 1])
      await expect(build('true', narrow)).rejects.toThrow('is taken; raise vm.uid_max')
      stranger.kill('SIGKILL')
      await stranger.exited
    })

    test('a process that pretends to be the QEMU of another VM is not taken for it', async () => {
      // Goal: command lines can be read and forged; whose QEMU it is shows in its uid.
      const own = create(16)
      const id = newUuid()
      const pretend = ['bash', '-c', 'read -t 1000 -u 9 9<> <(:)', '-uuid', id]
      const impostor = Bun.spawn(['setpriv', `--reuid=${firstUid + 16}`, '--clear-groups', ...pretend])
      await until(
        'the impostor runs',
        patienceMs,
        () => listWithUuid().find(({ uuid }) => uuid === id)?.pid === impostor.pid,
      )
      const vm = await build('true', own, id)
      expect(pidOf(vm)).not.toBe(impostor.pid)
      // As a daemon finds it that was killed while it started QEMU.
      recordResource(store.ledger.db, { vmId: id, kind: 'qemu', name: `unspawned:${id}`, nowMs: 1 })
      expect(own.isAlive(vm)).toBe(true)
      killFound(processesByUid().get(uidOf(vm))?.[0])
      await until('QEMU is gone', patienceMs, () => !own.isAlive(vm))
      expect(listWithUuid().find(({ uuid }) => uuid === id)?.pid).toBe(impostor.pid)
      impostor.kill('SIGKILL')
      await impostor.exited
    })

    test('what runs under a uid that no VM has is a leak, and a VM that has lost its processes misses its uid', async () => {
      // Goal: `doctor --leaks` tells of an escape that outlived its VM, and stays silent about VMs as they should be.
      const own = create(16)
      const vm = await build('true', own)
      moveVm(store.ledger.db, { id: vm.id, from: 'launching', to: 'running', nowMs: 1 })
      const uids = { min: firstUid, max: firstUid + 15 }
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
            uids,
          })
        ).filter(leak => leak.kind === 'uid')
      expect(await leaks()).toEqual([])
      const taken = new Set(listResources(store.ledger.db, 'uid').map(row => row.name))
      const free = [...Array(16).keys()].map(n => `${firstUid + n}`).find(name => !taken.has(name)) ?? ''
      const stranger = Bun.spawn(['setpriv', `--reuid=${free}`, '--clear-groups', 'sleep', '1000'])
      await until('the stranger runs', patienceMs, () => processesByUid().has(Number(free)))
      process.kill(pidOf(vm), 'SIGKILL')
      await until('the VM is gone', patienceMs, () => !processesByUid().has(uidOf(vm)))
      expect(await leaks()).toMatchObject([
        { kind: 'uid', name: free, detail: 'unknown', vm: null, remedy: `pkill -KILL --uid ${free}` },
        { kind: 'uid', name: `${uidOf(vm)}`, detail: 'missing', vm: vm.id },
      ])
      stranger.kill('SIGKILL')
      await stranger.exited
    })

    test('a directory that an earlier version gave to its user is taken back before it is trusted', async () => {
      // Goal: root connects to no link, whoever put it there.
      const vm = await build('true', create(16))
      const { directory, qmp } = pathsOf(vm)
      renameSync(qmp, join(dir, 'elsewhere.sock'))
      symlinkSync(join(dir, 'elsewhere.sock'), qmp)
      chmodSync(directory, 0o777)
      await expect(driver.attach(vm, () => {})).rejects.toThrow('qmp.sock is no socket')
      expect(lstatSync(directory).mode & 0o777).toBe(0o700)
    })
  },
  { timeoutMs },
)
