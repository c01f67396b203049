// Goal: an independent client pulls a boot image by digest and notices changes; `verify build` accepts what it
// pulled.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeBuilderImage } from '../../../scripts/rigs/build/image-directory.ts'
import { cargoRecord } from '../../../scripts/rigs/build/record.ts'
import { sampleResult } from '../../../scripts/rigs/build/result.ts'
import { simulatedAsOf, simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { measureIgvm } from '../../../src/attest/igvm/measure.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { policyWithFloors } from '../../../src/attest/policy/floor-policy.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { type BootImages, createBootImages, type ServedImage } from '../../../src/builds/oci/boot-images.ts'
import { verifyCommands } from '../../../src/builds/oci/commands.plan.ts'
import { ociRoutes, serveOci } from '../../../src/builds/oci/registry.ts'
import { main } from '../../rigs/program.ts'

const plainRequest = {
  sourceKind: 'archive',
  projectDir: null,
  toolchain: null,
  options: null,
  waivers: [],
  fetchCaSha256: null,
  cratesMirror: null,
} as const

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-oci-`))
const imageDirectory = join(dir, 'image')
let images: BootImages
let image: ServedImage
let server: Bun.Server<undefined>
let written: Awaited<ReturnType<typeof writeBuilderImage>>
let base: string
/** Changes a response on its way. */
let tamper: ((path: string, response: Response) => Promise<Response>) | null = null

beforeAll(async () => {
  written = await writeBuilderImage(imageDirectory)
  images = createBootImages(new Map([['builder', imageDirectory]]))
  image = present(await images.open('builder'), 'the image')
  server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: async request => {
      const response = await serveOci(contents(), request)
      return tamper === null ? response : await tamper(new URL(request.url).pathname, response)
    },
  })
  base = `http://127.0.0.1:${server.port}`
})
afterAll(async () => {
  await server.stop(true)
  rmSync(dir, { recursive: true, force: true })
})

const summary = utf8('a summary')
const contents = () => ({
  images,
  summaries: () => [{ sha256: hexOf(summary).slice('sha256:'.length), bytes: summary }],
})

const get = (path: string, init: RequestInit = {}) => fetch(`${base}${path}`, init)
const bytesOf = async (response: Response) => new Uint8Array(await response.arrayBuffer())
const hexOf = (bytes: Uint8Array) => `sha256:${new Bun.CryptoHasher('sha256').update(bytes).digest('hex')}`

async function errorOf(response: Response): Promise<[number, string]> {
  const { errors } = (await response.json()) as { errors: { code: string; message: string }[] }
  const [error] = errors
  expect(error?.message).toMatch(/\.$/)
  return [response.status, error?.code ?? '']
}

async function shell(
  command: string,
  env: Record<string, string> = {},
): Promise<{ code: number; stderr: string; stdout: string }> {
  const child = Bun.spawn(['sh', '-c', command], {
    cwd: dir,
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    env: { ...process.env, ...env },
  })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { code, stderr, stdout }
}

// Goal: what any client of OCI asks for, it gets as the specification has it, and nothing can be changed.
describe('distribution-spec', () => {
  test('base, manifest by tag and by digest, exact bytes', async () => {
    expect([(await get('/v2/')).status, await (await get('/v2/')).text()]).toEqual([200, '{}'])
    for (const reference of ['latest', image.digest]) {
      const response = await get(`/v2/builder/manifests/${reference}`)
      expect(response.headers.get('content-type')).toBe('application/vnd.oci.image.manifest.v1+json')
      expect(response.headers.get('docker-content-digest')).toBe(image.digest)
      expect(hexOf(await bytesOf(response))).toBe(image.digest)
    }
  })

  test('every layer is its file, and its size and digest are those of the manifest', async () => {
    const manifest = JSON.parse(new TextDecoder().decode(image.manifest))
    expect(manifest.config.digest).toBe(hexOf(new TextEncoder().encode('{}')))
    expect(await (await get(`/v2/builder/blobs/${manifest.config.digest}`)).text()).toBe('{}')
    const titles: string[] = []
    for (const { digest, size, annotations } of manifest.layers) {
      const title = annotations['org.opencontainers.image.title']
      titles.push(title)
      const bytes = await bytesOf(await get(`/v2/builder/blobs/${digest}`))
      expect([title, bytes.length, hexOf(bytes)]).toEqual([title, size, digest])
      expect(toHex(bytes)).toBe(toHex(new Uint8Array(readFileSync(join(imageDirectory, title)))))
    }
    expect(titles).toEqual([
      ...['manifest.json', 'provenance.json', 'cmdline', 'firmware', 'kernel', 'initrd', 'root', 'builder.igvm'],
    ])
  })

  test('a verification summary is found by the digest that a result names, and is no layer', async () => {
    // Goal: whoever reads a result gets the host's word on the image; the image's own digest does not depend on it.
    const digest = hexOf(summary)
    const response = await get(`/v2/builder/blobs/${digest}`)
    expect([response.headers.get('content-type'), response.headers.get('docker-content-digest')]).toEqual([
      'application/vnd.dsse.envelope.v1+json',
      digest,
    ])
    expect(await response.text()).toBe('a summary')
    expect(new TextDecoder().decode(image.manifest)).not.toContain(digest)
  })

  test('HEAD says the same without a body', async () => {
    const kernel = present(
      image.files.find(file => file.name === 'kernel'),
      'the kernel',
    )
    for (const path of ['/v2/', '/v2/builder/manifests/latest', `/v2/builder/blobs/${kernel.digest}`]) {
      const [head, whole] = [await get(path, { method: 'HEAD' }), await get(path)]
      const bytes = await bytesOf(whole)
      expect([path, head.status, head.headers.get('content-length')]).toEqual([path, 200, String(bytes.length)])
      expect(head.headers.get('docker-content-digest')).toBe(whole.headers.get('docker-content-digest'))
      expect((await bytesOf(head)).length).toBe(0)
    }
  })

  test('ranges', async () => {
    const { digest, sizeBytes, path } = present(
      image.files.find(file => file.name === 'kernel'),
      'the kernel',
    )
    const whole = readFileSync(path)
    const part = async (range: string, more: Record<string, string> = {}) =>
      await get(`/v2/builder/blobs/${digest}`, { headers: { range, ...more } })
    for (const [range, from, to] of [
      ['bytes=0-0', 0, 1],
      ['bytes=10-99', 10, 100],
      ['bytes=100-', 100, sizeBytes],
      ['bytes=-7', sizeBytes - 7, sizeBytes],
      [`bytes=5-${sizeBytes + 5}`, 5, sizeBytes],
      [`bytes=-${sizeBytes * 2}`, 0, sizeBytes],
    ] as const) {
      const response = await part(range)
      expect([range, response.status]).toEqual([range, 206])
      expect(response.headers.get('content-range')).toBe(`bytes ${from}-${to - 1}/${sizeBytes}`)
      expect(toHex(await bytesOf(response))).toBe(whole.subarray(from, to).toString('hex'))
    }
    for (const range of [`bytes=${sizeBytes}-`, 'bytes=-0']) {
      const response = await part(range)
      expect([range, response.status, response.headers.get('content-range')]).toEqual([
        range,
        416,
        `bytes */${sizeBytes}`,
      ])
    }
    for (const range of ['bytes=0-1,3-4', 'bytes=9-1', 'lines=0-1', 'bytes=-', 'bytes=x-']) {
      expect([range, (await part(range)).status]).toEqual([range, 200])
    }
    // ETag of another file than the client's partial one.
    expect((await part('bytes=0-0', { 'if-range': '"other"' })).status).toBe(200)
    expect((await part('bytes=0-0', { 'if-range': `"${digest}"` })).status).toBe(206)
  })

  test('tags, referrers', async () => {
    expect(await (await get('/v2/builder/tags/list')).json()).toEqual({ name: 'builder', tags: ['latest'] })
    expect(await (await get('/v2/builder/tags/list?last=latest')).json()).toEqual({ name: 'builder', tags: [] })
    const response = await get(`/v2/builder/referrers/${image.digest}`)
    expect(response.headers.get('content-type')).toBe('application/vnd.oci.image.index.v1+json')
    expect(await response.json()).toMatchObject({ schemaVersion: 2, manifests: [] })
  })

  test('errors have the body of the specification', async () => {
    const none = `sha256:${'0'.repeat(64)}`
    const cases: [string, RequestInit, [number, string]][] = [
      ['/v2/nothing/manifests/latest', {}, [404, 'NAME_UNKNOWN']],
      ['/v2/builder/manifests/v2', {}, [404, 'MANIFEST_UNKNOWN']],
      [`/v2/builder/manifests/${none}`, {}, [404, 'MANIFEST_UNKNOWN']],
      ['/v2/builder/manifests/sha512:00', {}, [400, 'DIGEST_INVALID']],
      [`/v2/builder/blobs/${none}`, {}, [404, 'BLOB_UNKNOWN']],
      ['/v2/builder/blobs/..%2f..%2fetc%2fpasswd', {}, [400, 'DIGEST_INVALID']],
      ['/v2/builder/blobs/latest', {}, [400, 'DIGEST_INVALID']],
      ['/v2/builder/referrers/x', {}, [400, 'DIGEST_INVALID']],
      ['/v2/builder/other', {}, [404, 'NAME_UNKNOWN']],
      ['/v2/a/b/manifests/latest', {}, [404, 'NAME_UNKNOWN']],
      ['/v2/builder/manifests/latest', { method: 'PUT', body: '{}' }, [405, 'UNSUPPORTED']],
      ['/v2/builder/blobs/uploads/', { method: 'POST' }, [405, 'UNSUPPORTED']],
      [`/v2/builder/manifests/${image.digest}`, { method: 'DELETE' }, [405, 'UNSUPPORTED']],
    ]
    for (const [path, init, expected] of cases)
      expect([path, await errorOf(await get(path, init))]).toEqual([path, expected])
  })

  test('routes for the dispatcher, each asked to admit first', async () => {
    const asked: string[] = []
    const routes = ociRoutes({ ...contents(), admit: address => asked.push(address) })
    expect(routes.map(route => route.path)).toEqual([
      '/v2/',
      '/v2/:name/manifests/:reference',
      '/v2/:name/blobs/:digest',
      '/v2/:name/tags/list',
      '/v2/:name/referrers/:digest',
    ])
    const request = new Request(`${base}/v2/builder/manifests/latest`)
    const response = await present(routes[1], 'manifests').respond({ request, address: () => '192.0.2.1' })
    expect([response.status, asked]).toEqual([200, ['192.0.2.1']])
  })
})

// Goal: a digest always is that of the bytes that are sent, at the cost of one reading.
describe('files that change', () => {
  test('a digest is computed once, and again for a file that changed', async () => {
    const other = join(dir, 'other')
    await writeBuilderImage(other, 3)
    const served = createBootImages(new Map([['builder', other]]))
    const before = present(await served.open('builder'), 'the image')
    const path = join(other, 'kernel')
    const { atime, mtime } = statSync(path)
    writeFileSync(path, Buffer.alloc(statSync(path).size))
    // The time of change cannot be set back with the time of writing.
    utimesSync(path, atime, mtime)
    const after = present(await served.open('builder'), 'the image')
    expect(after.digest).not.toBe(before.digest)
    rmSync(path)
    await expect(served.open('builder')).rejects.toThrow('cannot be read')
    expect(await served.open('../image')).toBeNull()
  })
})

// Goal: a client that nobody here wrote pulls by digest, and notices what was changed on the way.
describe('skopeo', () => {
  const copy = (to: string) =>
    shell(`skopeo copy --src-tls-verify=false docker://127.0.0.1:${server.port}/builder@${image.digest} dir:${to}`)

  test('inspects and copies it', async () => {
    const inspected = await shell(
      `skopeo inspect --raw --tls-verify=false docker://127.0.0.1:${server.port}/builder:latest`,
    )
    expect([inspected.code, inspected.stderr]).toEqual([0, ''])
    expect(hexOf(new TextEncoder().encode(inspected.stdout))).toBe(image.digest)
    const copied = await copy('copied')
    expect([copied.code, copied.stderr]).toEqual([0, ''])
    for (const { name, digest } of image.files) {
      const bytes = readFileSync(join(dir, 'copied', digest.slice('sha256:'.length)))
      expect([name, hexOf(bytes)]).toEqual([name, digest])
    }
  })

  test('notices a changed manifest and a changed layer', async () => {
    // Goal: whoever pulls by digest gets exactly that or nothing.
    for (const path of ['/manifests/', '/blobs/']) {
      tamper = async (asked, response) => {
        if (!asked.includes(path) || !response.ok || response.headers.get('content-length') === '2') return response
        const bytes = await bytesOf(response)
        bytes[20] = (bytes[20] ?? 0) ^ 1
        const headers = new Headers(response.headers)
        return new Response(bytes, { headers })
      }
      const { code, stderr } = await copy(`tampered-${path.slice(1, 3)}`)
      tamper = null
      expect(code).not.toBe(0)
      expect(stderr).toMatch(/digest|match/i)
    }
  })

  test('the printed commands run as they are printed', async () => {
    const { digest } = await measureIgvm(new Uint8Array(readFileSync(written.igvm)), { profile: 'qemu-kvm' })
    const { files, nonce } = await sampleResult({ measurement: digest })
    for (const [path, bytes] of files) await Bun.write(join(dir, 'project', path), bytes)
    const { ark, ask } = (await simulatedPlatform('genoa')).authority.root
    const pem = [ark, ask].map(der => toPem(der, 'CERTIFICATE')).join('')
    await Bun.write(join(dir, 'config/strongroom/root.pem'), pem)
    await Bun.write(
      join(dir, 'config/strongroom/client.toml'),
      `trust_simulated_root = ${JSON.stringify(join(dir, 'config/strongroom/root.pem'))}\n`,
    )
    // The measurement is the client's own knowledge.
    const policyFile = join(dir, 'policy.json')
    await Bun.write(policyFile, JSON.stringify(encodePolicy({ ...policyWithFloors(), measurements: [digest] })))
    // The program of this tree, at the fixed time at which the simulated certificates are valid.
    const program = join(dir, 'bin/strongroom')
    await Bun.write(
      program,
      `#!/bin/sh\nexec ${process.execPath} ${main} "$@" --as-of ${simulatedAsOf.toISOString()}\n`,
    )
    await shell(`chmod +x ${program}`)
    const env = { PATH: `${join(dir, 'bin')}:${process.env.PATH}`, XDG_CONFIG_HOME: join(dir, 'config') }
    const commands = verifyCommands({
      baseUrl: base,
      project: './project',
      nonce: toHex(nonce),
      asked: { ...plainRequest, sourceKind: 'git' },
      image: { name: 'builder', digest: image.digest, hasIgvm: image.hasIgvm },
    })
    const [pull, verify] = commands
    expect(await shell(present(pull, 'pull'), env)).toMatchObject({ code: 0, stderr: '' })
    const done = await shell(
      present(verify, 'verify')
        .replace('COMMIT', cargoRecord.source.commit ?? '')
        .replace('POLICY', policyFile),
      env,
    )
    expect(done).toMatchObject({ code: 0, stdout: expect.stringContaining('VERDICT: PASS SIMULATED') })
  })

  test('printed without an IGVM file, without an image, and for TLS', () => {
    const build = { baseUrl: 'https://builds.example:8444', project: './p', nonce: '0011', asked: plainRequest }
    const pulled = { name: 'builder', digest: 'sha256:00', hasIgvm: false }
    expect(verifyCommands({ ...build, image: pulled })).toEqual([
      'skopeo copy docker://builds.example:8444/builder@sha256:00 dir:./builder-image',
      'strongroom verify build ./p --nonce 0011 --source SOURCE --policy POLICY --image ./builder-image',
    ])
    expect(verifyCommands({ ...build, image: null })).toEqual([
      'strongroom verify build ./p --nonce 0011 --source SOURCE',
    ])
    const asked = {
      sourceKind: 'git',
      projectDir: "it's; id",
      toolchain: 'nix',
      options: null,
      waivers: [],
      fetchCaSha256: '00',
    } as const
    const cratesMirror = 'sparse+https://crates.example/'
    expect(verifyCommands({ ...build, image: null, asked: { ...asked, cratesMirror } })).toEqual([
      `strongroom verify build ./p --nonce 0011 --commit COMMIT --project-dir 'it'\\''s; id' --toolchain nix --fetch-ca AUTHORITIES --crates-mirror ${cratesMirror}`,
    ])
  })
})
