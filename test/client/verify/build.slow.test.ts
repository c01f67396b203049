// Goal: `verify build` judges a result in one word and by exit code: 0 good, 1 a check failed, 2 cannot be read.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { writeBuilderImage } from '../../../scripts/rigs/build/image-directory.ts'
import { cargoRecord } from '../../../scripts/rigs/build/record.ts'
import { type SampleResult, sampleResult } from '../../../scripts/rigs/build/result.ts'
import { simulatedAsOf, simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { measureIgvm } from '../../../src/attest/igvm/measure.ts'
import type { BuildRecord } from '../../../src/attest/provenance/record.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { recordOf } from '../../rigs/build/submitter.ts'
import { checksOf, expectUsageError, run, runHere, runJson } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-verify-build-`))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

let good: SampleResult
let measurement: Uint8Array
let image: Awaited<ReturnType<typeof writeBuilderImage>>
let options: string[]
const commit = present(cargoRecord.source.commit, 'a commit')
const imageDirectory = join(dir, 'image')
const project = join(dir, 'demo')

function write(directory: string, files: ReadonlyMap<string, Uint8Array>): string {
  for (const [path, bytes] of files) {
    mkdirSync(dirname(join(directory, path)), { recursive: true })
    writeFileSync(join(directory, path), bytes)
  }
  return directory
}

async function system(...argv: string[]): Promise<void> {
  const child = Bun.spawn(argv, { cwd: dir, stdout: 'ignore', stderr: 'pipe' })
  expect([await child.exited, await child.stderr.text()]).toEqual([0, ''])
}

const answer = async (path: string, ...more: string[]) => {
  const result = await runHere(['verify', 'build', path, ...options, ...more, '--json'])
  const document = JSON.parse(result.stdout)
  return { code: result.code, broken: document.first_broken, document }
}

beforeAll(async () => {
  image = await writeBuilderImage(imageDirectory)
  const { digest } = await measureIgvm(new Uint8Array(readFileSync(image.igvm)), { profile: 'qemu-kvm' })
  measurement = digest
  good = await sampleResult({ measurement })
  write(project, good.files)
  const { ark, ask } = (await simulatedPlatform('genoa')).authority.root
  const root = join(dir, 'root.pem')
  writeFileSync(root, [ark, ask].map(der => toPem(der, 'CERTIFICATE')).join(''))
  options = [
    ...['--nonce', toHex(good.nonce), '--trust-simulated-root', root, '--as-of', simulatedAsOf.toISOString()],
    ...['--igvm', image.igvm, '--image', imageDirectory, '--own-image', '--commit', commit],
  ]
})

// Goal: whatever form it comes in, it is the same result.
describe('a good result', () => {
  test('as a process, in the text and in the document', async () => {
    const argv = ['verify', 'build', project, ...options]
    const [text, { code, document }] = await Promise.all([run(...argv), runJson(...argv)])
    expect([text.code, code, text.stderr]).toEqual([0, 0, ''])
    expect(text.stdout).toStartWith('VERDICT: PASS SIMULATED')
    expect(text.stdout).toContain('SLSA: no level\n  missing: the platform is simulated: no hardware\n')
    expect(text.stdout.split('\n').length).toBeLessThan(25)
    expect(checksOf(document, 'FAIL')).toEqual([])
    expect(document).toMatchObject({
      ok: true,
      simulated: true,
      first_broken: null,
      provenance: { job_id: '4f9d2c1e-0000-4000-8000-000000000001', build_type: 'urn:strongroom:build:cargo:v1' },
    })
  })

  test('as an archive, whoever packed it and however', async () => {
    await system('tar', '-czf', 'gnu.tar.gz', 'demo')
    await system('tar', '--format=pax', '-czf', 'pax.tar.gz', 'demo')
    await system('tar', '--format=ustar', '-cf', 'plain.tar', 'demo')
    await system('tar', '-C', 'demo', '-czf', 'flat.tar.gz', '.')
    await system('python3', '-c', "import tarfile\nwith tarfile.open('python.tar.gz', 'w:gz') as t: t.add('demo')")
    for (const name of ['gnu.tar.gz', 'pax.tar.gz', 'plain.tar', 'flat.tar.gz', 'python.tar.gz']) {
      expect([name, (await answer(join(dir, name))).code]).toEqual([name, 0])
    }
  })

  test('with the image alone, and with the directory for both', async () => {
    const at = options.indexOf('--igvm')
    const short = options.toSpliced(at, 2)
    const result = await runHere(['verify', 'build', project, ...short, '--json'])
    // It was launched from the IGVM file for two vCPUs, which the manifest has a digest for.
    expect([result.code, JSON.parse(result.stdout).first_broken]).toEqual([0, null])
    expect((await answer(project, '--igvm', imageDirectory)).code).toBe(0)
  })

  test("an image as skopeo's dir: leaves it: files named by digest", async () => {
    const pulled = join(dir, 'pulled')
    mkdirSync(pulled)
    const names = ['firmware', 'kernel', 'initrd', 'cmdline', 'root', 'manifest.json', 'builder.igvm']
    const layers = names.map(name => {
      const bytes = readFileSync(join(imageDirectory, name))
      const hex = new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
      writeFileSync(join(pulled, hex), bytes)
      return { digest: `sha256:${hex}`, annotations: { 'org.opencontainers.image.title': name } }
    })
    writeFileSync(join(pulled, 'manifest.json'), JSON.stringify({ schemaVersion: 2, layers }))
    expect((await answer(project, '--igvm', pulled, '--image', pulled)).code).toBe(0)
    writeFileSync(join(pulled, 'manifest.json'), JSON.stringify({ schemaVersion: 2, layers: layers.slice(1) }))
    await expectUsageError(['verify', 'build', project, ...options, '--image', pulled], 'names no layer "firmware"')
  })
})

// Goal: the whole way from the file on disk to the exit code and the line.
describe('not good', () => {
  const copy = (name: string) => {
    const at = join(dir, name)
    cpSync(project, at, { recursive: true })
    return at
  }

  test('a byte in each file, with the line that says so', async () => {
    // Goal: the whole way from the file on disk to the exit code.
    const lines: Readonly<Record<string, string>> = {
      'provenance.json': 'provenance-format',
      'evidence.json': 'evidence-format',
      'build.log': 'byproduct-digests',
    }
    for (const [path, bytes] of good.files) {
      const at = copy('flipped')
      const changed = bytes.slice()
      changed[1] = (changed[1] ?? 0) ^ 1
      writeFileSync(join(at, path), changed)
      const { code, broken } = await answer(at)
      const line = lines[path] ?? (path.startsWith('artifacts/') ? 'artifact-digests' : 'byproduct-digests')
      expect([path, code, broken]).toEqual([path, line.endsWith('-format') ? 2 : 1, line])
      rmSync(at, { recursive: true })
    }
  })

  test('the text says what failed and what is missing', async () => {
    const at = copy('artifact')
    writeFileSync(join(at, 'artifacts/demo-server'), 'another')
    const { code, stdout } = await runHere(['verify', 'build', at, ...options])
    expect([code, stdout]).toEqual([1, expect.stringContaining('first broken link: artifact-digests')])
    expect(stdout).toMatch(/^VERDICT: FAIL/)
    expect(stdout).toContain('artifacts/demo-server is ')
  })

  test('one file missing', async () => {
    const exits = { 'provenance.json': 2, 'evidence.json': 2, 'build.log': 1 }
    for (const [path, exit] of Object.entries(exits)) {
      const at = copy('missing')
      rmSync(join(at, path))
      expect([path, (await answer(at)).code]).toEqual([path, exit])
      rmSync(at, { recursive: true })
    }
  })

  test('another nonce, the disk, the IGVM file', async () => {
    const at = options.indexOf('--nonce')
    const other = await runHere(['verify', 'build', project, ...options.with(at + 1, '00'.repeat(16)), '--json'])
    expect([other.code, JSON.parse(other.stdout).first_broken]).toEqual([1, 'dispatch/nonce'])
    const disk = join(dir, 'disk')
    cpSync(imageDirectory, disk, { recursive: true })
    const bytes = image.disk.slice()
    bytes[4096 * 17] = 1
    writeFileSync(join(disk, 'root'), bytes)
    expect((await answer(project, '--image', disk)).broken).toBe('image-root-hash')
    const igvm = readFileSync(image.igvm)
    igvm[igvm.length - 9000] = (igvm[igvm.length - 9000] ?? 0) ^ 1
    writeFileSync(join(dir, 'other.igvm'), igvm)
    expect((await answer(project, '--igvm', join(dir, 'other.igvm'))).broken).toBe('launch-measurement')
  })
})

// Goal: the source is named or waived, and the verdict says which, with root, VMPL and firmware below it.
describe('the source', () => {
  const bare = () => options.toSpliced(options.indexOf('--commit'), 2)
  const wrapped = async (record: Partial<BuildRecord>) => {
    const { files } = await sampleResult({ measurement, record: { ...(await recordOf(sourceDirectory)), ...record } })
    return write(mkdtempSync(join(dir, 'archive-')), files)
  }
  const sourceDirectory = join(dir, 'hello')
  beforeAll(() => {
    mkdirSync(join(sourceDirectory, 'src'), { recursive: true })
    writeFileSync(join(sourceDirectory, 'Cargo.toml'), '[package]')
    writeFileSync(join(sourceDirectory, 'src/main.rs'), 'fn main() {}', { mode: 0o755 })
  })

  test('a directory, and the archive that somebody else packed of it', async () => {
    const built = await wrapped({})
    await system('tar', '-czf', 'hello.tar.gz', 'hello')
    await system('python3', '-c', "import shutil; shutil.make_archive('hello', 'zip', '.', 'hello')")
    const verify = async (path: string, ...more: string[]) =>
      await runHere(['verify', 'build', built, ...bare(), '--source', path, ...more])
    for (const path of [sourceDirectory, join(dir, 'hello.tar.gz'), join(dir, 'hello.zip')]) {
      const { code, stdout } = await verify(path)
      expect([path, code]).toEqual([path, 0])
      for (const name of [
        'built from  archive, git tree ',
        'SIMULATED   no hardware',
        'hardware    none',
        'firmware 27',
      ]) {
        expect(stdout).toContain(name)
      }
    }
    expect((await verify(sourceDirectory, '--verbose')).stdout).toContain('rests on root: SIMULATED')
    const { rests_on } = JSON.parse((await verify(sourceDirectory, '--json')).stdout)
    expect(rests_on).toContain('VMPL: 0')
    writeFileSync(join(sourceDirectory, 'src/main.rs'), 'fn main() { evil() }')
    const other = await verify(sourceDirectory)
    expect([other.code, other.stdout]).toEqual([1, expect.stringContaining('first broken link: source')])
    // A mode is a part of the tree, too.
    await system('tar', '--mode=0644', '-czf', 'mode.tar.gz', 'hello')
    expect((await verify(join(dir, 'mode.tar.gz'))).code).toBe(1)
  })

  test('a commit, its repository and its ref', async () => {
    const verify = async (...more: string[]) => (await runHere(['verify', 'build', project, ...bare(), ...more])).code
    const named = ['--commit', commit, '--repository', 'https://git.example/demo.git', '--ref', 'main']
    expect(await verify(...named)).toBe(0)
    expect(await verify(...named.with(1, 'b'.repeat(40)))).toBe(1)
    expect(await verify(...named.with(3, 'https://git.example/fork.git'))).toBe(1)
    expect(await verify(...named.with(5, 'v1'))).toBe(1)
    expect(await verify('--commit', commit, '--project-dir', 'sub')).toBe(1)
    expect(await verify('--commit', commit, '--toolchain', 'cargo')).toBe(1)
    expect(await verify('--commit', commit, '--crates-mirror', 'sparse+https://crates.example/')).toBe(1)
    expect(await verify('--commit', commit, '--reproduce')).toBe(0)
  })

  test('named once, or waived', async () => {
    const refuse = async (message: string, ...more: string[]) =>
      await expectUsageError(['verify', 'build', project, ...bare(), ...more], message)
    await refuse('exactly one of --source, --commit and --any-source')
    await refuse('exactly one of', '--commit', commit, '--any-source')
    await refuse('exactly one of', '--source', dir, '--commit', commit)
    await refuse('It must be a whole commit id', '--commit', 'abc')
    await refuse('--ref goes with --commit', '--any-source', '--ref', 'main')
    await refuse('is no directory, and no archive', '--source', join(dir, 'nothing'))
    const waived = await runHere(['verify', 'build', project, ...bare(), '--any-source'])
    expect([waived.code, waived.stdout]).toEqual([0, expect.stringContaining(`any source: commit ${commit}`)])
  })

  test('of another builder of the family, which states no order', async () => {
    const vectors = join(import.meta.dir, '../../vectors/builds/kex')
    const at = join(dir, 'kex')
    cpSync(vectors, at, { recursive: true })
    const { subject } = JSON.parse(readFileSync(join(at, 'provenance.json'), 'utf8'))
    mkdirSync(join(at, 'artifacts'))
    writeFileSync(join(at, 'artifacts', subject[0].name), '')
    const asked = ['--any-source', '--any-nonce', '--any-measurement', '--any-crl', '--any-tcb']
    const { stdout } = await runHere(['verify', 'build', at, ...asked, '--as-of', '2026-06-01T00:00:00Z', '--json'])
    const { checks, first_broken } = JSON.parse(stdout)
    // Its artifact is not here; all else is good.
    expect(first_broken).toBe('artifact-digests')
    const source = checks.find(({ name }: { name: string }) => name === 'source')
    expect(source.reason).toContain('accepted any source: ')
  })
})

// Goal: what cannot be read is no verdict; nothing outside of the result is named, read or written.
describe('exit code 2', () => {
  const refuse = (path: string, message: string) => expectUsageError(['verify', 'build', path, ...options], message)

  test('what is no result', async () => {
    await refuse(join(dir, 'nothing'), 'there is no such file')
    mkdirSync(join(dir, 'bare'))
    await refuse(imageDirectory, 'it is a boot image, not the result of a build')
    await refuse(join(dir, 'bare'), 'neither provenance.json nor evidence.json is in it')
    await refuse(join(imageDirectory, 'kernel'), 'neither a tar.gz nor a tar')
    const tar = readFileSync(join(dir, 'gnu.tar.gz'))
    writeFileSync(join(dir, 'cut.tar.gz'), tar.subarray(0, tar.length / 2))
    await refuse(join(dir, 'cut.tar.gz'), 'archive: ')
    tar[tar.length - 5] = (tar[tar.length - 5] ?? 0) ^ 1
    writeFileSync(join(dir, 'damaged.tar.gz'), tar)
    await refuse(join(dir, 'damaged.tar.gz'), 'archive: ')
  })

  test('a directory with a link, or a pipe, in it', async () => {
    const at = join(dir, 'linked')
    cpSync(project, at, { recursive: true })
    symlinkSync('/etc/passwd', join(at, 'artifacts/passwd'))
    await refuse(at, 'is neither a file nor a directory')
    rmSync(join(at, 'artifacts/passwd'))
    await system('mkfifo', join(at, 'artifacts/pipe'))
    await refuse(at, 'is neither a file nor a directory')
  })

  test('a hostile archive', async () => {
    // Goal: nothing is written anywhere, and nothing outside of the archive is named or read.
    const script = (body: string) => `
import tarfile, io
def entry(name, data=b'x', **more):
    info = tarfile.TarInfo(name); info.size = len(data)
    for key, value in more.items(): setattr(info, key, value)
    return info, io.BytesIO(data)
with tarfile.open('hostile.tar.gz', 'w:gz', compresslevel=1) as tar:
    def add(*a, **k):
        info, data = entry(*a, **k); tar.addfile(info, data)
    ${body}
`
    const cases: [string, string][] = [
      ["add('demo/../../etc/x')", 'leaves the archive'],
      ["add('/etc/x')", 'leaves the archive'],
      ["add('demo/a\\\\\\\\b')", 'leaves the archive'],
      ["add('demo/a'); add('demo/a')", 'twice'],
      ["add('demo/l', b'', type=tarfile.SYMTYPE, linkname='/etc/passwd')", 'neither a file nor a directory'],
      ["add('demo/l', b'', type=tarfile.LNKTYPE, linkname='demo/x')", 'neither a file nor a directory'],
      ["add('demo/d', b'', type=tarfile.CHRTYPE)", 'neither a file nor a directory'],
      ["add('demo/provenance.json', b'x' * (17 * 1024 * 1024))", 'at most'],
      ["add('demo/' + 'a/' * 30 + 'x')", 'leaves the archive'],
      ["[add('d%d/provenance.json' % n, b'x' * (15 * 1024 * 1024)) for n in range(5)]", 'bytes of documents'],
      ["[add('demo/%d' % n, b'') for n in range(20001)]", 'more than 20000 files'],
    ]
    for (const [body, message] of cases) {
      await system('python3', '-c', script(body))
      await refuse(join(dir, 'hostile.tar.gz'), message)
    }
    // A name of 10 MiB before an entry.
    const header = Buffer.alloc(512)
    header.write('././@LongLink', 0)
    header.write('00050000000\0', 124)
    header.write('L', 156)
    header.write('ustar  \0', 257, 'latin1')
    header.fill(' ', 148, 156)
    const sum = header.reduce((total, byte) => total + byte, 0)
    header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
    writeFileSync(join(dir, 'long.tar.gz'), gzipSync(Buffer.concat([header, Buffer.alloc(10 * 1024 * 1024)])))
    await refuse(join(dir, 'long.tar.gz'), 'a record of ')
  })

  test('options', async () => {
    // Goal: a nonce is named or waived, and a file that is named is there.
    const without = options.toSpliced(options.indexOf('--nonce'), 2)
    await expectUsageError(['verify', 'build', project, ...without], '--nonce is missing')
    await expectUsageError(['verify', 'build', project, ...options, '--any-nonce'], 'contradict')
    for (const nonce of ['', '0', 'zz', '00'.repeat(17)])
      await expectUsageError(
        ['verify', 'build', project, '--any-source', '--nonce', nonce],
        '1 to 16 bytes in hexadecimal',
      )
    await expectUsageError(['verify', 'build', project, ...options, '--igvm', join(dir, 'no.igvm')], 'no such file')
    await expectUsageError(['verify', 'build', project, ...options, '--image', project], 'no such file')
  })
})
