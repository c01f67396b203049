// The agent's requests for reports, against the kernel modules in the images' own package: names, modes and sizes of
// the attributes in configfs, names of providers and devices, and the layout that no header has.

import { describe, expect, test } from 'bun:test'
import { configAttributes, structLayouts } from '../../../scripts/rigs/guest/kernel-object.ts'
import { fetchPackage, IMAGE_RECIPES, kernelModules, kernelOf } from '../../../scripts/rigs/guest/kernel-package.ts'
import { createTsmKernel, type TsmSettings } from '../../../scripts/rigs/guest/tsm-kernel.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { present } from '../../../src/base/assert.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { openConfigfs } from '../../../src/guest/report/configfs.ts'
import * as sevGuest from '../../../src/guest/report/sev-guest.codec.ts'
import { findSvsm } from '../../../src/guest/report/svsm.ts'

const images = await Promise.all(IMAGE_RECIPES.map(kernelOf))
const [image] = images
const fetched = image === undefined ? null : await fetchPackage(image.kernel)
const modules =
  image !== undefined && fetched?.ok === true
    ? await kernelModules(image.kernel, fetched.path, ['tsm', 'sev-guest'])
    : null
const reason = fetched?.ok === false ? fetched.reason : ''

const reports = guestPaths('').tsmReports
const attributesOf = (file: Uint8Array) => configAttributes(file, 'tsm_report_attr_')

/** Names of attributes that the agent reads and writes, and the largest write to each. */
async function usedAttributes(settings: TsmSettings) {
  const [read, written] = [new Set<string>(), new Map<string, number>()]
  const kernel = createTsmKernel(settings)
  const nameOf = (path: string) => path.slice(path.lastIndexOf('/') + 1)
  const files = {
    ...kernel,
    read: async (path: string) => {
      const bytes = await kernel.read(path)
      read.add(nameOf(path))
      return bytes
    },
    write: async (path: string, bytes: Uint8Array) => {
      await kernel.write(path, bytes)
      written.set(nameOf(path), Math.max(bytes.length, written.get(nameOf(path)) ?? 0))
    },
  }
  const nonce = new Uint8Array(64)
  expect(await (await openConfigfs(reports, files))?.ask(nonce)).toMatchObject({ ok: true })
  const svsm = await findSvsm(reports, files)
  if (svsm !== null) await svsm(nonce)
  return { read, written }
}

describe.skipIf(skipUnless(modules !== null, reason))("the modules of the images' kernel", () => {
  const { tsm, 'sev-guest': guest } = modules ?? { tsm: new Uint8Array(), 'sev-guest': new Uint8Array() }
  const has = (file: Uint8Array, text: string) => Buffer.from(file).includes(`\0${text}\0`, 0, 'latin1')

  test('goal: the modules are those of every image', () => {
    expect(new Set(images.map(({ kernel }) => kernel.sha256)).size).toBe(1)
  })

  test('goal: each attribute that the agent reads or writes exists, may be read or written, and holds what is written', async () => {
    const { read, written } = await usedAttributes({ floor: 2, manifest: new Uint8Array(120) })
    expect([...read].toSorted()).toEqual(['generation', 'manifestblob', 'outblob', 'privlevel_floor', 'provider'])
    expect([...written.keys()].toSorted()).toEqual([
      ...['inblob', 'privlevel', 'service_guid', 'service_manifest_version', 'service_provider'],
    ])
    const byName = new Map(attributesOf(tsm).map(attribute => [attribute.name, attribute]))
    const used = (name: string) => present(byName.get(name), `an attribute ${name}`)
    expect([...read].filter(name => used(name).mode !== 0o444)).toEqual([])
    expect([...written].filter(([name]) => used(name).mode !== 0o200)).toEqual([])
    expect(used('inblob').bytesMax).toBe(written.get('inblob') ?? null)
    // A report, and the largest manifest that the agent accepts.
    expect(used('outblob').bytesMax).toBeGreaterThanOrEqual(1184)
    expect(used('manifestblob').bytesMax).toBeGreaterThanOrEqual(4096)
  })

  test('goal: the kernel that stands in for it in tests has no attribute that the module lacks', async () => {
    const kernel = createTsmKernel({ floor: 2, manifest: new Uint8Array(120) })
    await kernel.makeDirectory(`${reports}/entry`)
    const names = [...(kernel.entries.get(`${reports}/entry`)?.keys() ?? [])]
    const readable = attributesOf(tsm).flatMap(({ name, mode }) => (mode === 0o444 ? [name] : []))
    expect(names.filter(name => !readable.includes(name))).toEqual([])
    for (const { name, mode, bytesMax } of attributesOf(tsm)) {
      const written = await kernel.write(`${reports}/entry/${name}`, Buffer.from('svsm')).then(
        () => true,
        error => error.code !== 'EACCES',
      )
      expect(`${name} ${written}`).toBe(`${name} ${(mode & 0o200) !== 0}`)
      if (bytesMax === null || !written) continue
      const tooLarge = kernel.write(`${reports}/entry/${name}`, new Uint8Array(bytesMax + 1))
      expect(await tooLarge.then(() => 'written', String)).toContain('EFBIG')
    }
  })

  test('goal: the directories, the providers and the device have the names of the modules', () => {
    expect(reports).toBe('/sys/kernel/config/tsm/report')
    expect([has(tsm, 'tsm'), has(tsm, 'report')]).toEqual([true, true])
    expect([has(guest, 'sev_guest'), has(guest, 'svsm')]).toEqual([true, true])
    expect(guestPaths('').sevGuest).toBe('/dev/sev-guest')
    expect(has(guest, 'sev-guest')).toBe(true)
  })

  test("goal: a report stands in the firmware's response where the module itself finds it, and the requests are its own", () => {
    const { rsvd, report, ...head } = sevGuest.REPORT_RSP
    const layouts = structLayouts(guest, ['snp_msg_report_resp_hdr', 'snp_report_req', 'snp_report_resp'])
    expect(layouts).toEqual({
      snp_msg_report_resp_hdr: { bytes: report[0], offsets: [head.status[0], head.reportSize[0], rsvd[0]] },
      snp_report_req: {
        bytes: sevGuest.reportReqBytes,
        offsets: [sevGuest.REPORT_REQ.userData[0], sevGuest.REPORT_REQ.vmpl[0], sevGuest.REPORT_REQ.rsvd[0]],
      },
      snp_report_resp: { bytes: sevGuest.reportRespBytes, offsets: [0] },
    })
  })
})
