// Images that hosts verify before VMs boot from them: real files, a real operator key, signatures checked by
// node:crypto.

import { afterAll, describe, expect, test } from 'bun:test'
import { createPublicKey, verify } from 'node:crypto'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeBuilderImage } from '../../../scripts/rigs/build/image-directory.ts'
import { imageVcpuType, writeImageProvenance } from '../../../scripts/rigs/launch/launch-image.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import { preAuthEncoding, readDsse } from '../../../src/attest/provenance/dsse.ts'
import { readSummary, summaryKeyId } from '../../../src/attest/provenance/summary.ts'
import { present } from '../../../src/base/assert.ts'
import { fromUtf8, toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { openOperatorKey } from '../../../src/host/operator-key.ts'
import { launchDocument } from '../../../src/vm/launch/expected.plan.ts'
import { loadBuilderImage } from '../../../src/vm/launch/image.driver.ts'
import { ImageSummaries, type ImageSummariesDeps } from '../../../src/vm/launch/image-summary.driver.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-image-summary-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))
const operatorKey = await openOperatorKey(dir)
const sound = join(dir, 'sound')
const { manifest } = await writeBuilderImage(sound, 3)
let count = 0

/** A copy of the sound image, and a place of its own for summaries. */
function bench(changes: Partial<ImageSummariesDeps> = {}) {
  count += 1
  const image = join(dir, `image-${count}`)
  cpSync(sound, image, { recursive: true })
  const directory = join(dir, `summaries-${count}`)
  const create = (more: Partial<ImageSummariesDeps> = {}) =>
    new ImageSummaries({
      directory,
      operatorKey,
      clock: systemClock,
      version: '0.1.0',
      log: silentLogger,
      ...changes,
      ...more,
    })
  const edit = (name: string, change: (text: string) => string) => {
    const path = join(image, name)
    writeFileSync(path, change(readFileSync(path, 'latin1')), 'latin1')
  }
  return { image, directory, create, edit, kept: () => readdirSync(directory).toSorted() }
}

const launched = (name = manifest.name) => ({
  ...launchDocument(
    { ...manifest, name },
    { vehicle: 'bios', vcpuType: imageVcpuType, vcpus: 2, memoryMib: 2048, igvmSha256: null },
  ),
})

describe('a sound image', () => {
  test('is verified, and its summary is signed with the operator key', async () => {
    // Goal: one small file shows anyone who trusts the operator key what this host verified, which bytes, to which
    // level.
    const { image, create, kept, directory } = bench()
    const summaries = create()
    expect(summaries.ofImage('builder')).toEqual([])
    const { manifestSha256, provenanceSha256, subject } = await summaries.verifyBuilder(image)
    expect([manifestSha256, provenanceSha256].map(hex => summaries.hasPassed(hex))).toEqual([true, false])
    const [summary] = summaries.ofImage('builder')
    const { sha256, bytes } = present(summary, 'a summary')
    expect(kept()).toEqual([`${sha256}.json`])
    expect(readFileSync(join(directory, `${sha256}.json`)).equals(bytes)).toBe(true)
    expect(sha256).toBe(new Bun.CryptoHasher('sha256').update(bytes).digest('hex'))
    const { payload, payloadType, signatures } = readDsse(bytes)
    const key = createPublicKey(operatorKey.publicPem)
    expect(verify('sha384', preAuthEncoding(payloadType, payload), key, present(signatures[0], 'one').sig)).toBe(true)
    expect(readSummary(bytes)).toMatchObject({
      name: 'builder',
      subject,
      provenanceSha256,
      version: '0.1.0',
      verifierId: `urn:strongroom:host:${toHex(operatorKey.digest)}`,
      keyId: summaryKeyId(new Uint8Array(key.export({ type: 'spki', format: 'der' }))),
    })
    expect(subject.map(({ name }) => name)).toEqual([
      'cmdline',
      'firmware',
      'initrd',
      'kernel',
      'manifest.json',
      'root',
    ])
    expect(JSON.parse(fromUtf8(payload)).predicate.verifiedLevels).toEqual(['SLSA_BUILD_LEVEL_1'])
  })

  test('has one summary for each key and release, and keeps it over restarts', async () => {
    // Goal: results name a summary by its digest: a restart must not make another of the same facts.
    const { image, create, kept } = bench()
    const first = create()
    await Promise.all([first.verifyBuilder(image), first.verifyBuilder(image)])
    const names = kept()
    expect(names).toHaveLength(1)
    const again = create()
    expect(again.ofImage('builder')).toEqual(first.ofImage('builder'))
    await again.verifyBuilder(image)
    expect(kept()).toEqual(names)
    const newer = create({ version: '0.2.0', clock: { nowMs: () => Date.now() + 1000 } })
    await newer.verifyBuilder(image)
    expect(kept()).toHaveLength(2)
    expect(newer.ofLaunch(launched())).toEqual(newer.ofImage('builder')[0] ?? null)
    const otherHost = join(dir, 'other-host')
    mkdirSync(otherHost)
    await create({ operatorKey: await openOperatorKey(otherHost) }).verifyBuilder(image)
    expect(kept()).toHaveLength(3)
  })

  test('is found again by what a VM was launched from, and nothing else is', async () => {
    // Goal: a result names the summary of its own VM's image, not that of an image that came later.
    const { image, create } = bench()
    const summaries = create()
    await summaries.verifyBuilder(image)
    const document = launched()
    expect(summaries.ofLaunch(document)?.sha256).toBe(present(summaries.ofImage('builder')[0], 'one').sha256)
    const ff = 'ff'.repeat(32)
    expect(summaries.ofLaunch({ ...document, image: { ...document.image, rootHash: ff } })).toBeNull()
    expect(summaries.ofLaunch({ ...document, kernelSha256: ff })).toBeNull()
    expect(summaries.ofLaunch({ ...document, initrdSha256: ff })).toBeNull()
    expect(summaries.ofLaunch(launched('instance'))).toBeNull()
  })

  test('leaves at most 64 summaries, and what was damaged is removed', async () => {
    // Goal: the directory stays small, and no file under a digest that is not its own is handed out.
    const { image, create, kept, directory } = bench()
    const summaries = create()
    await summaries.verifyBuilder(image)
    const [first = ''] = kept()
    for (let release = 1; release <= 64; release += 1) {
      await create({ version: `1.0.${release}`, clock: { nowMs: () => Date.now() + release * 1000 } }).verifyBuilder(
        image,
      )
    }
    expect(kept()).toHaveLength(64)
    expect(kept()).not.toContain(first)
    const [damaged = ''] = kept()
    writeFileSync(join(directory, damaged), 'x')
    writeFileSync(join(directory, `${'a'.repeat(64)}.json.tmp`), 'cut short')
    writeFileSync(join(directory, 'notes.txt'), 'an operator may write here')
    expect(create().ofImage('builder')).toHaveLength(63)
    expect(kept()).not.toContain(damaged)
    expect(kept().filter(name => !name.endsWith('.json'))).toEqual(['notes.txt'])
  })
})

describe('an image that is not what its provenance says is refused with what to do, and has no summary', () => {
  const digest = /"sha256": "([0-9a-f]{64})"/g
  const digests = [...readFileSync(join(sound, 'provenance.json'), 'latin1').matchAll(digest)].map(
    ([, hex = '']) => hex,
  )

  async function refusalOf(b: ReturnType<typeof bench>): Promise<string> {
    const summaries = b.create()
    const error = await failure(summaries.verifyBuilder(b.image))
    expect([error.code, b.kept(), summaries.ofImage('builder')]).toEqual(['image.invalid', [], []])
    return error.message
  }

  test.each(['subject', 'inputs'] as const)('a flipped digest in its provenance: %s', async what => {
    // Goal: each digest that the host can compare counts.
    const known = [...Object.values(manifest.files).map(file => file.sha256), manifest.rootHash]
    const wanted = what === 'subject' ? known : [manifest.inputsSha256]
    for (const hex of wanted) {
      const b = bench()
      b.edit('provenance.json', text =>
        text.replace(
          hex,
          hex.replace(/^./, first => (first === '0' ? '1' : '0')),
        ),
      )
      const message = await refusalOf(b)
      expect(message).toContain('bun scripts/build-image.ts builder')
      expect(message).toContain(`in the ${what === 'subject' ? 'image' : 'manifest'} ${hex}`)
    }
    expect(digests.length).toBeGreaterThan(known.length)
  })

  test('none at all', async () => {
    // Goal: an image of an earlier release is recognized before it boots.
    const b = bench()
    rmSync(join(b.image, 'provenance.json'))
    expect(await refusalOf(b)).toContain('bun scripts/build-image.ts builder')
    expect(() => loadBuilderImage(b.image)).toThrow('provenance.json: ENOENT')
  })

  test("another image's, or one that is no provenance", async () => {
    // Goal: a copy that was mixed from two images is found.
    const b = bench()
    const other = join(dir, 'other-image')
    await writeBuilderImage(other, 4)
    cpSync(join(other, 'provenance.json'), join(b.image, 'provenance.json'))
    expect(await refusalOf(b)).toContain('in the image')
    const c = bench()
    writeImageProvenance(c.image, { ...manifest, name: 'instance' })
    expect(await refusalOf(c)).toContain('it is of the image instance, the manifest of builder')
    const d = bench()
    d.edit('provenance.json', () => '{}')
    expect(await refusalOf(d)).toContain('no _type')
  })

  test.each(Object.keys(manifest.files) as (keyof typeof manifest.files)[])('one byte of its %s', async part => {
    // Goal: the bytes themselves are read, the root's too, which nobody else on the host reads whole.
    const b = bench()
    const { path } = manifest.files[part]
    const bytes = readFileSync(join(b.image, path))
    const at = part === 'cmdline' ? 0 : bytes.length - 1
    bytes[at] = (bytes[at] ?? 0) ^ 1
    writeFileSync(join(b.image, path), bytes)
    expect(await refusalOf(b)).toContain(`${path}: SHA-256 is`)
  })

  test('a manifest that was edited', async () => {
    // Goal: launch digests in it are the provenance's to bind.
    const b = bench()
    b.edit('manifest.json', text => text.replace('"kernelVersion":"6.12"', '"kernelVersion":"6.13"'))
    expect(await refusalOf(b)).toContain('manifest.json: sha256 is')
  })
})

test('a file that changes after it was verified is found at the next launch', async () => {
  // Goal: what is kept of earlier readings is of the files as they were.
  const b = bench()
  const summaries = b.create()
  await summaries.verifyBuilder(b.image)
  const path = join(b.image, manifest.files.root.path)
  const bytes = readFileSync(path)
  bytes[0] = (bytes[0] ?? 0) ^ 1
  writeFileSync(path, bytes)
  expect((await failure(summaries.verifyBuilder(b.image))).message).toContain('root: SHA-256 is')
})
