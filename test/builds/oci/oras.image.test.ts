// Goal: a second client that nobody here wrote, and that asks for other things than skopeo, takes a boot image whole and notices what was changed.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeBuilderImage } from '../../../scripts/rigs/build/image-directory.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { present } from '../../../src/base/assert.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { createBootImages } from '../../../src/builds/oci/boot-images.ts'
import { serveOci } from '../../../src/builds/oci/registry.ts'
import { unpackOras } from '../../rigs/build/oras.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-oras-'))
const imageDirectory = join(dir, 'image')
await writeBuilderImage(imageDirectory)
const images = createBootImages(new Map([['builder', imageDirectory]]))
const image = present(await images.open('builder'), 'the image')
const sha256 = (bytes: Uint8Array) => new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
const summary = { bytes: utf8('a summary'), sha256: sha256(utf8('a summary')) }
/** Changes a byte of every response whose path has this in it. */
let tampered: string | null = null
const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  fetch: async request => {
    const response = await serveOci({ images, summaries: () => [summary] }, request)
    if (tampered === null || !request.url.includes(tampered) || !response.ok || request.method === 'HEAD')
      return response
    const bytes = new Uint8Array(await response.arrayBuffer())
    bytes[20] = (bytes[20] ?? 0) ^ 1
    return new Response(bytes, { headers: response.headers })
  },
})
afterAll(async () => {
  await server.stop(true)
  rmSync(dir, { recursive: true, force: true })
})
const found = await unpackOras(join(dir, 'oras'))
const skipped = skipUnless('path' in found, 'reason' in found ? found.reason : '')
const name = `127.0.0.1:${server.port}/builder`

async function oras(...argv: string[]): Promise<{ code: number; stdout: Uint8Array; stderr: string }> {
  const program = 'path' in found ? found.path : ''
  const [command = '', ...rest] = argv
  const child = Bun.spawn([program, ...command.split(' '), '--plain-http', ...rest], {
    cwd: dir,
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    // It keeps credentials there, and has none.
    env: { PATH: process.env.PATH, HOME: dir },
  })
  const [stdout, stderr, code] = await Promise.all([child.stdout.bytes(), child.stderr.text(), child.exited])
  return { code, stdout, stderr }
}

describe.skipIf(skipped)('oras', () => {
  test('pulls every file under its own name, by digest and by tag', async () => {
    // Goal: what it leaves on disk is an image's directory, as `--image` takes it.
    for (const reference of [`${name}@${image.digest}`, `${name}:latest`]) {
      const to = join(dir, 'pulled', reference.includes('@') ? 'digest' : 'tag')
      mkdirSync(to, { recursive: true })
      expect(await oras('pull', '--output', to, reference)).toMatchObject({ code: 0, stderr: '' })
      expect(readdirSync(to).toSorted()).toEqual(image.files.map(file => file.name).toSorted())
      for (const file of image.files) {
        expect([file.name, `sha256:${sha256(readFileSync(join(to, file.name)))}`]).toEqual([file.name, file.digest])
      }
    }
  })

  test('reads the manifest, the tags, the referrers and a verification summary', async () => {
    // Goal: the endpoints that only such clients ask for answer as the specification has it.
    const manifest = await oras('manifest fetch', `${name}:latest`)
    expect([manifest.code, `sha256:${sha256(manifest.stdout)}`]).toEqual([0, image.digest])
    expect((await oras('repo tags', name)).stdout).toEqual(utf8('latest\n'))
    const discovered = await oras('discover', '--format', 'json', `${name}@${image.digest}`)
    expect([discovered.code, JSON.parse(Buffer.from(discovered.stdout).toString()).manifests]).toEqual([0, []])
    const blob = await oras('blob fetch', '--output', '-', `${name}@sha256:${summary.sha256}`)
    expect([blob.code, blob.stderr, blob.stdout]).toEqual([0, '', summary.bytes])
  })

  test('notices a changed manifest and a changed file', async () => {
    // Goal: whoever pulls by digest gets exactly that or an error.
    const kernel = present(
      image.files.find(file => file.name === 'kernel'),
      'the kernel',
    )
    // The file by itself: this version of oras now and then panics where one of several fails.
    const cases = [
      ['/manifests/', ['pull', '--output', dir, `${name}@${image.digest}`]],
      ['/blobs/', ['blob fetch', '--output', join(dir, 'changed'), `${name}@${kernel.digest}`]],
    ] as const
    for (const [path, argv] of cases) {
      tampered = path
      const { code, stderr } = await oras(...argv)
      tampered = null
      expect([path, code]).toEqual([path, 1])
      expect(stderr).toMatch(/digest|mismatch/)
    }
  })
})
