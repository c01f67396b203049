import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { makeSandbox } from '../../../scripts/rigs/guest/root.ts'
import { bareReport, createTsmKernel, type TsmSettings } from '../../../scripts/rigs/guest/tsm-kernel.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { kernelFiles, openConfigfs } from '../../../src/guest/report/configfs.ts'
import { createReportDevice } from '../../../src/guest/report/device.ts'
import { findReportDevice } from '../../../src/guest/report/find.ts'

const reports = '/sys/kernel/config/tsm/report'
const reportData = Uint8Array.from({ length: 64 }, (_, at) => 255 - at)
const paused: number[] = []
const noClock = { sleep: async (ms: number) => void paused.push(ms) }

async function open(settings: TsmSettings) {
  const kernel = createTsmKernel(settings)
  const found = await openConfigfs(reports, kernel)
  if (found === null) throw new Error('a provider was there')
  return { kernel, device: createReportDevice('configfs-tsm', found.ask, noClock) }
}

describe('configfs-tsm', () => {
  // Goal: a report is over exactly the bytes that were asked, and no entry stays behind.
  test('gives a report', async () => {
    const { kernel, device } = await open({})
    expect(await device.report(reportData)).toEqual(bareReport(reportData))
    expect(kernel.asked).toEqual([{ inblob: reportData, privlevel: 0 }])
    expect(kernel.entries.size).toBe(0)
  })

  // Goal: under an SVSM the kernel takes its floor as the privilege level and nothing more privileged.
  test('keeps to the floor', async () => {
    const { kernel, device } = await open({ floor: 2 })
    await device.report(reportData)
    expect(kernel.asked).toEqual([{ inblob: reportData, privlevel: 2 }])
  })

  // Goal: an entry that a dead agent left is no obstacle.
  test('takes over a leftover', async () => {
    const kernel = createTsmKernel()
    await kernel.makeDirectory(`${reports}/strongroom`)
    const found = await openConfigfs(reports, kernel)
    expect(await found?.ask(reportData)).toMatchObject({ ok: true })
  })

  // Goal: the directory without hardware behind it, another platform's provider, and no directory at all are no device.
  test('needs the provider', async () => {
    expect(await openConfigfs(reports, createTsmKernel({ provider: null }))).toBeNull()
    expect(await openConfigfs(reports, createTsmKernel({ provider: 'tdx_guest' }))).toBeNull()
    expect(await openConfigfs('/nonexistent/tsm/report', kernelFiles)).toBeNull()
  })

  // Goal: throttling is waited out with growing pauses, within a bound; anything else ends at once.
  test('tries again within a bound', async () => {
    paused.length = 0
    const patient = await open({ errors: ['EBUSY', 'EAGAIN'] })
    expect(await patient.device.report(reportData)).toHaveLength(1184)
    expect(paused).toEqual([100, 200])
    paused.length = 0
    const busy = await open({ errors: Array(100).fill('EBUSY') })
    expect(busy.device.report(reportData)).rejects.toThrow('configfs-tsm: configfs-tsm: EBUSY (6 tries)')
    await busy.device.report(reportData).catch(() => {})
    expect(paused).toEqual([100, 200, 400, 800, 1600, 100, 200, 400, 800, 1600])
    const broken = await open({ errors: ['EIO'] })
    expect(broken.device.report(reportData)).rejects.toThrow('EIO (1 tries)')
  })

  // Goal: a report over data that someone else wrote in between is never taken.
  test('sees a meddler', async () => {
    const { device } = await open({ meddler: true })
    expect(device.report(reportData)).rejects.toThrow('generation 2, not 1')
  })

  // Goal: what is no report, and what is no REPORT_DATA, is refused before anybody signs with it.
  test('checks sizes', async () => {
    const { device } = await open({ reportOf: () => new Uint8Array(4000) })
    expect(device.report(reportData)).rejects.toThrow('report of 4000 bytes')
    expect(device.report(new Uint8Array(63))).rejects.toThrow('report data: 63 bytes')
  })

  // Goal: the real file operations write the whole value in one go and read it back whole.
  test('files', async () => {
    await using sandbox = await makeSandbox()
    const entry = `${sandbox.root}/entry`
    await kernelFiles.makeDirectory(entry)
    expect(kernelFiles.makeDirectory(entry)).rejects.toMatchObject({ code: 'EEXIST' })
    expect(kernelFiles.write(`${entry}/inblob`, reportData)).rejects.toMatchObject({ code: 'ENOENT' })
    fs.writeFileSync(`${entry}/inblob`, '')
    await kernelFiles.write(`${entry}/inblob`, reportData)
    expect(Uint8Array.from(await kernelFiles.read(`${entry}/inblob`))).toEqual(reportData)
    // Without a turn in between, in which a program could start and keep a copy of the descriptor.
    const written = kernelFiles.write(`${entry}/inblob`, reportData.toReversed())
    expect(new Uint8Array(fs.readFileSync(`${entry}/inblob`))).toEqual(reportData.toReversed())
    const held = fs.readdirSync('/proc/self/fd').map(fd => linkOf(`/proc/self/fd/${fd}`))
    expect(held.filter(path => path.startsWith(entry))).toEqual([])
    await written
    fs.rmSync(`${entry}/inblob`)
    await kernelFiles.removeDirectory(entry)
    expect(fs.existsSync(entry)).toBe(false)
  })
})

/** Empty for a descriptor that is closed by now. */
function linkOf(path: string): string {
  try {
    return fs.readlinkSync(path)
  } catch {
    return ''
  }
}

describe('the device', () => {
  // Goal: it is looked for when init is done, not before; without one the answer is no device.
  test('is found once init is done', async () => {
    await using sandbox = await makeSandbox()
    const { paths } = sandbox
    const files = createTsmKernel({ provider: null })
    expect(await findReportDevice({ paths, files, clock: systemClock, devicesWaitMs: 0 })).toBeNull()
    const late = createTsmKernel()
    const looks: string[] = []
    const finding = findReportDevice({
      paths,
      files: {
        ...late,
        makeDirectory: async path => {
          looks.push(path)
          await late.makeDirectory(path)
        },
      },
      clock: systemClock,
      devicesWaitMs: 10_000,
    })
    await Bun.sleep(60)
    expect(looks).toEqual([])
    fs.writeFileSync(paths.devicesReady, '')
    expect((await finding)?.kind).toBe('configfs-tsm')
  })

  // Goal: without configfs-tsm the character device is taken; what is no such device fails with a reason.
  test('is the character device where there is no configfs', async () => {
    await using sandbox = await makeSandbox()
    const { paths } = sandbox
    fs.writeFileSync(paths.sevGuest, '')
    const files = createTsmKernel({ provider: null })
    const device = await findReportDevice({ paths, files, clock: systemClock, devicesWaitMs: 0 })
    expect(device?.kind).toBe('sev-guest')
    expect(device?.report(reportData)).rejects.toThrow('sev-guest: SNP_GET_REPORT: ENOTTY')
  })
})
