import { describe, expect, test } from 'bun:test'
import { isMirror } from '../../src/builder/cargo/cargo.plan.ts'
import { readCargoLock } from '../../src/builder/cargo/lock.codec.ts'
import { rootArgv } from '../../src/builder/confined/root.plan.ts'
import { BuildFailure } from '../../src/builder/failure.ts'
import { cleanLine, Job } from '../../src/builder/job.ts'
import { proxyAddress } from '../../src/builder/network.ts'
import { readFlakeLock } from '../../src/builder/nix/flake-lock.codec.ts'
import { readBuilt, readDerivations } from '../../src/builder/nix/nix.plan.ts'
import { checkClone, fetchArgv } from '../../src/builder/source/clone.plan.ts'

function failureOf(act: () => unknown): string {
  try {
    act()
  } catch (error) {
    if (error instanceof BuildFailure) return `${error.errorType}: ${error.message}`
    throw error
  }
  return 'taken'
}

const sum = 'ab'.repeat(32)
const commit = 'cd'.repeat(20)
const lockOf = (source: string, more = '') =>
  `version = 4\n[[package]]\nname = "a"\nversion = "1.0.0"\nsource = "${source}"\n${more}\n[[package]]\nname = "own"\nversion = "0.1.0"\n`

describe('Cargo.lock', () => {
  // Goal: what comes from elsewhere is read with what pins it, in each form that cargo writes.
  test('packages', () => {
    const registry = readCargoLock(lockOf('registry+https://index.example/', `checksum = "${sum}"`))
    expect(registry).toEqual({
      own: [{ name: 'own', version: '0.1.0', source: null }],
      crates: [
        {
          name: 'a',
          version: '1.0.0',
          source: 'registry+https://index.example/',
          pin: { kind: 'registry', sha256: sum, url: 'https://index.example/' },
        },
      ],
    })
    const git = readCargoLock(lockOf(`git+https://git.example/a?rev=x#${commit}`))
    expect(git.crates[0]?.pin).toEqual({ kind: 'git', url: 'https://git.example/a', commit })
    const old = `[[package]]\nname = "a"\nversion = "1.0.0"\nsource = "registry+https://index.example/"\n[metadata]\n"checksum a 1.0.0 (registry+https://index.example/)" = "${sum}"\n`
    expect(readCargoLock(old).crates[0]?.pin).toMatchObject({ kind: 'registry', sha256: sum })
    const cratesIo = readCargoLock(
      lockOf('registry+https://github.com/rust-lang/crates.io-index', `checksum = "${sum}"`),
    )
    expect(cratesIo.crates[0]?.pin).toEqual({ kind: 'registry', sha256: sum, url: null })
    expect(readCargoLock('version = 4\n')).toEqual({ own: [], crates: [] })
  })

  // Goal: what is not pinned, or would become a path or a protocol of its own, is refused by name.
  test('refused', () => {
    const cases: [string, RegExp][] = [
      [lockOf('registry+https://index.example/'), /^checksum_mismatch: .*a 1.0.0 has no checksum/],
      [lockOf('registry+https://index.example/', 'checksum = "abc"'), /^checksum_mismatch/],
      [lockOf('git+https://git.example/a?branch=main'), /^source_invalid: .*no commit/],
      [lockOf('ftp+https://x.example/'), /^source_invalid: .*neither registry nor git/],
      ['[[package]]\nname = "../a"\nversion = "1.0.0"\n', /^source_invalid: .*proper name/],
      ['[[package]]\nname = "a"\nversion = "1/../2"\n', /^source_invalid: .*version/],
      ['package = 7\n', /^source_invalid/],
      ['[[package', /^source_invalid: Cargo.lock: .*cargo generate-lockfile/],
    ]
    for (const [text, why] of cases) expect(failureOf(() => readCargoLock(text))).toMatch(why)
  })
})

// Goal: flake inputs are read with their narHash; inputs inside the source belong to it; unlocked inputs are refused.
test('flake.lock', () => {
  const narHash = `sha256-${Buffer.from(sum, 'hex').toString('base64')}`
  const lock = (node: object) =>
    JSON.stringify({ version: 7, root: 'root', nodes: { root: { inputs: { x: 'x' } }, x: node } })
  const github = { type: 'github', owner: 'o', repo: 'r', rev: commit, narHash }
  expect(readFlakeLock(lock({ locked: github }))).toEqual([
    { kind: 'flake-input', name: 'x', uri: `github:o/r/${commit}`, narSha256: sum },
  ])
  expect(readFlakeLock(lock({ locked: { type: 'path', path: './sub' } }))).toEqual([])
  expect(failureOf(() => readFlakeLock(lock({ locked: { ...github, narHash: 'sha256-x' } })))).toMatch(
    /^checksum_mismatch/,
  )
  expect(failureOf(() => readFlakeLock(lock({})))).toMatch(/^source_invalid: .*not locked/)
  // Nix fetches what the root leads to. Another node would be a claim without a fetch.
  const nodes = { x: { locked: github, inputs: { y: 'y', z: ['x', 'y'] } }, y: { locked: github }, ghost: {} }
  const reached = (root: object) =>
    readFlakeLock(JSON.stringify({ version: 7, root: 'root', nodes: { root, ...nodes } })).map(({ name }) => name)
  expect(reached({ inputs: { any: 'x' } })).toEqual(['x', 'y'])
  expect(reached({ inputs: { any: 'y' } })).toEqual(['y'])
  expect(reached({})).toEqual([])
  expect(failureOf(() => reached({ inputs: { x: 'none' } }))).toMatch(/^source_invalid: .*node "none" is missing/)
  const marked = `<<<<<<< HEAD\n${lock({ locked: github })}\n=======\n>>>>>>> other\n`
  expect(failureOf(() => readFlakeLock(marked))).toMatch(
    /^source_invalid: flake\.lock: it contains merge conflict markers/,
  )
  expect(failureOf(() => readFlakeLock('{"version":5}'))).toMatch(/^source_invalid: .*version 5, 6 or 7/)
  expect(failureOf(() => readFlakeLock(JSON.stringify({ version: 4, nodes: {} })))).toMatch(/^source_invalid: .*2\.26/)
})

// Goal: an address stands in the evidence only for bytes that come from there. Nix fetches the first of several inputs
// with one narHash.
test('inputs of flake.lock with one narHash', () => {
  const narHash = `sha256-${Buffer.from(sum, 'hex').toString('base64')}`
  const github = { type: 'github', owner: 'o', repo: 'r', rev: commit, narHash }
  const read = (other: object) => {
    const nodes = {
      root: { inputs: { a: 'a', b: 'b' } },
      a: { locked: github },
      b: { locked: { ...github, ...other } },
    }
    return readFlakeLock(JSON.stringify({ version: 7, root: 'root', nodes })).map(({ uri }) => uri)
  }
  const uri = `github:o/r/${commit}`
  expect(read({})).toEqual([uri, uri])
  expect(read({ dir: 'lib' })).toEqual([uri, `${uri}?dir=lib`])
  // GitHub's names do not differ by case; the evidence has each as it is locked.
  expect(read({ owner: 'O' })).toEqual([uri, `github:O/r/${commit}`])
  const others = [
    { owner: 'p' },
    { rev: 'a'.repeat(40) },
    { host: 'git.example' },
    { type: 'gitlab', owner: 'O' },
    { type: 'tarball', url: 'https://a.example' },
  ]
  for (const other of others)
    expect([other, failureOf(() => read(other))]).toEqual([
      other,
      'source_invalid: flake.lock: the inputs "a" and "b" have one narHash and different addresses, of which Nix fetches ' +
        'only one; let one follow the other in flake.nix (`inputs.NAME.follows = "OTHER"`), and run `nix flake lock`',
    ])
})

// Goal: each form of an input that real locks have is read as Nix reads it, or refused with a remedy.
test('forms of flake.lock', () => {
  const narHash = `sha256-${Buffer.from(sum, 'hex').toString('base64')}`
  const read = (node: object, version = 7) =>
    readFlakeLock(JSON.stringify({ version, root: 'root', nodes: { root: { inputs: { x: 'x' } }, x: node } }))
  const github = { type: 'github', owner: 'o', repo: 'r', rev: commit }
  const input = (uri: string) => [{ kind: 'flake-input', name: 'x', uri, narSha256: sum }] as const
  const plain = input(`github:o/r/${commit}`)

  expect(read({ locked: { ...github, narHash } }, 6)).toEqual(plain)
  expect(read({ info: { lastModified: 1, narHash }, locked: github }, 5)).toEqual(plain)
  // Nix takes `info` in place of `locked`.
  const evil = { owner: 'evil', narHash }
  expect(read({ info: evil, locked: { ...github, narHash: 'sha256-x' } }, 5)).toEqual(input(`github:evil/r/${commit}`))
  for (const [info, version] of [
    [evil, 6],
    [evil, 7],
    [{}, 7],
    [null, 7],
    [[evil], 5],
    [null, 5],
  ] as const)
    expect(failureOf(() => read({ info, locked: { ...github, narHash } }, version))).toBe(
      'source_invalid: flake.lock: input "x" has "info", which Nix would use instead of "locked"; ' +
        'delete it and run `nix flake lock`',
    )
  expect(read({ locked: { ...github, narHash, host: 'git.example' } })).toEqual(
    input(`github:o/r/${commit}?host=git.example`),
  )
  expect(read({ locked: { ...github, narHash, host: 'git.example', dir: 'a/b' } })).toEqual(
    input(`github:o/r/${commit}?host=git.example&dir=a/b`),
  )
  expect(failureOf(() => read({ locked: github }))).toBe(
    'checksum_mismatch: flake.lock: input "x" has no narHash, as Nix with lazy trees writes it; ' +
      'delete flake.lock and run `nix flake lock --option lazy-trees false`',
  )

  const path = (text: unknown, more = {}) => read({ locked: { type: 'path', path: text, narHash }, ...more })
  for (const inside of ['./sub', 'sub', './a/../b', '.']) expect([inside, path(inside)]).toEqual([inside, []])
  expect(path('../sub', { parent: ['other'] })).toEqual([])
  for (const outside of ['/opt/dep', '../dep', './a/../../dep', 7]) {
    expect([outside, failureOf(() => path(outside))]).toEqual([
      outside,
      expect.stringMatching(/^source_invalid: .*not in the directory of flake\.nix; move its files there/),
    ])
  }
  expect(failureOf(() => path('../sub', { parent: [] }))).toMatch(/^source_invalid/)
  expect(failureOf(() => path('/sub', { parent: ['other'] }))).toMatch(/^source_invalid/)
})

describe('clone', () => {
  // Goal: one public https repository and the name of a branch, tag or commit; nothing that git takes for an option, a
  // helper, a refspec or a file.
  test('what is refused', () => {
    const urls = [
      'http://git.example/a',
      'ssh://git.example/a',
      'git://git.example/a',
      'file:///etc',
      'ext::sh -c id',
      '-u',
      '--upload-pack=id',
      '/etc',
      'git@git.example:a',
      'https://user:pass@git.example/a',
      'https://user@git.example/a',
      'https://@git.example/a',
      'https://git.example/a b',
      'https://git.example/a\n',
      'https://',
      'https://git.example/a?x',
      'https://git.example/a#x',
      'HTTPS://git.example\\@x/',
    ]
    for (const url of urls)
      expect([url, failureOf(() => checkClone({ url, ref: null }))]).toEqual([
        url,
        expect.stringMatching(/^source_invalid: repo_url/),
      ])
    const refs = [
      '-x',
      '--upload-pack=id',
      '+main',
      '^main',
      'a:b',
      'a..b',
      'a b',
      'a~1',
      'a^',
      'a@{1}',
      '@',
      'a\\b',
      'a//b',
      '/a',
      'a/',
      'a.lock',
      '.a',
      'a/.b',
      'a*',
      'a?',
      'a[',
      'ü',
      '',
    ]
    for (const ref of refs)
      expect([ref, failureOf(() => checkClone({ url: 'https://git.example/a', ref }))]).toEqual([
        ref,
        expect.stringMatching(/^source_invalid: repo_ref/),
      ])
  })

  // Goal: what is taken stands behind `--`, after settings that leave one protocol and no program.
  test('what is taken', () => {
    for (const ref of [null, 'main', 'refs/tags/v1.0', 'feature/x-1', commit]) {
      const argv = fetchArgv(checkClone({ url: 'https://git.example:8443/a.git', ref }), ref)
      expect(argv.slice(-3)).toEqual([
        '--',
        'https://git.example:8443/a.git',
        `${ref ?? 'HEAD'}:refs/strongroom/source`,
      ])
      for (const setting of [
        'core.hooksPath=/dev/null',
        'protocol.allow=never',
        'http.followRedirects=false',
        'credential.helper=',
        'transfer.fsckObjects=true',
      ]) {
        expect(argv).toContain(setting)
      }
    }
  })
})

// Goal: the host's proxy and mirror become part of command lines and settings only in their one form.
test('proxy and mirror', () => {
  expect(proxyAddress('http://10.1.2.3:8080')).toEqual({ host: '10.1.2.3', port: 8080 })
  for (const proxy of [
    '',
    'https://10.1.2.3:8080',
    'http://10.1.2.3',
    'http://10.1.2.3:0',
    'http://10.1.2.3:99999',
    'http://proxy.example:80',
    'http://a@10.1.2.3:80',
  ]) {
    expect(failureOf(() => proxyAddress(proxy))).toMatch(/^internal/)
  }
  expect(isMirror('sparse+https://mirror.example/index/')).toBe(true)
  for (const mirror of [
    'https://mirror.example/',
    'sparse+http://mirror.example/',
    'sparse+https://mirror.example',
    'sparse+https://mirror.example/"\nx="/',
  ]) {
    expect(isMirror(mirror)).toBe(false)
  }
})

// Goal: a build's sandbox has no network, no nested namespaces, six devices, and only named places are writable; git's
// has the network.
test('the root of a program', () => {
  const plan = {
    uid: 61_002,
    network: false,
    nestedNamespaces: false,
    binds: [{ from: '/s/a', to: '/build/source', writable: true }],
    etcDir: '/s/etc',
    env: { A: '-b' },
    cwd: '/build/source',
    argv: ['cargo', '--x'],
  }
  const argv = rootArgv(plan)
  for (const option of [
    '--unshare-net',
    '--disable-userns',
    '--unshare-pid',
    '--clearenv',
    '--new-session',
    '--die-with-parent',
  ])
    expect(argv).toContain(option)
  expect(argv.filter((_, at) => argv[at - 1] === '--bind')).toEqual(['/s/a'])
  expect(argv.filter((_, at) => argv[at - 1] === '--dev-bind')).toEqual([
    '/dev/null',
    '/dev/zero',
    '/dev/full',
    '/dev/random',
    '/dev/urandom',
    '/dev/tty',
  ])
  expect(argv.slice(-3)).toEqual(['--', 'cargo', '--x'])
  expect(rootArgv({ ...plan, network: true })).not.toContain('--unshare-net')
})

// Goal: answers of Nix are read in the form of both the version that ships and older ones, and nothing else is.
test('answers of Nix', () => {
  const hash = 'a'.repeat(32)
  const drvPath = `/nix/store/${hash}-x.drv`
  expect(readBuilt(JSON.stringify([{ drvPath, outputs: { out: `/nix/store/${hash}-x` } }]))).toEqual([
    { drvPath, outputs: [`/nix/store/${hash}-x`] },
  ])
  for (const text of [
    '',
    '{}',
    '[{}]',
    JSON.stringify([{ drvPath, outputs: { out: '/etc/passwd' } }]),
    JSON.stringify([{ drvPath, outputs: { out: `/nix/store/${hash}-x/../../..` } }]),
  ]) {
    expect(readBuilt(text)).toBeNull()
  }
  const derivations = {
    [drvPath]: { outputs: { out: { hash: sum, hashAlgo: 'r:sha256' } }, env: { name: 'x', url: 'https://x.example/' } },
  }
  expect(readDerivations(JSON.stringify(derivations))).toEqual({
    drvPaths: new Set([drvPath]),
    fetches: [
      {
        kind: 'nix-fetch',
        name: 'x',
        drvPath: `${hash}-x.drv`,
        outputHashMode: 'recursive',
        hash: { algorithm: 'sha256', hex: sum },
        url: 'https://x.example/',
        urls: ['https://x.example/'],
        outPath: null,
      },
    ],
  })
  expect(readDerivations('[]')).toBeNull()
})

describe('job', () => {
  // Goal: lines are counted without a gap and given in portions; the result comes with the last line, never before.
  test('progress', () => {
    const job = new Job()
    for (let at = 0; at < 100; at += 1) job.say('init', `line ${at}`)
    job.succeed({ sizeBytes: 1, sha256: sum, provenanceSha256: sum })
    const first = job.progress(0)
    expect([first.lines.length, first.result]).toEqual([64, null])
    const second = job.progress(64)
    expect(second.lines.map(line => line.seq)).toEqual(Array.from({ length: 36 }, (_, at) => at + 64))
    expect(second.result).toMatchObject({ status: 'ok' })
    expect(job.progress(1_000_000)).toMatchObject({ lines: [] })
  })

  // Goal: a response fits into a line of the wire for any output of a build: many lines, long lines, bytes that are no
  // text, no line end.
  test('output', () => {
    const job = new Job()
    const take = job.output('build')
    take(Buffer.from(`${'"\\'.repeat(3000)}\n`.repeat(80)))
    take(Buffer.from([0xff, 0xfe, 0x0a]))
    take(Buffer.alloc(200_000, 0x61))
    take(Buffer.from('\n\n\n'))
    for (let from = 0; from < 82; ) {
      const { lines } = job.progress(from)
      expect(JSON.stringify(lines).length).toBeLessThan(64 * 1024)
      expect(lines.length).toBeGreaterThan(0)
      expect(lines.every(line => line.type === 'build' && line.msg.length <= 4096)).toBe(true)
      from += lines.length
    }
    expect(job.logBytes().length).toBe(80 * 6001 + 3 + 200_003)
  })

  // Goal: a failure's message ends with what the last program said, and with nothing from before it.
  test('tail', () => {
    const job = new Job()
    job.say('init', 'ours')
    job.output('fetch')(Buffer.from('first\n'))
    job.output('build')(Buffer.from(`${'x'.repeat(9000)}\n\x1b[1mlast\x1b[0m\n`))
    expect(job.tail()).toEndWith('x\nlast')
    expect(job.tail()).not.toMatch(/ours|first/)
    expect(job.tail().length).toBeLessThanOrEqual(4000)
  })

  // Goal: lines without end are cut with a word, and the log has them all.
  test('many lines', () => {
    const job = new Job()
    const take = job.output('build')
    for (let at = 0; at < 60; at += 1) take(Buffer.from('x\n'.repeat(1000)))
    job.say('provenance', 'done')
    const last = job.progress(10_000).lines
    expect(last.map(line => line.msg)).toEqual(['(build.log has the remaining lines)', 'done'])
    expect(job.logBytes().length).toBeGreaterThan(120_000)
  })

  // Goal: cancelling ends a wait for evidence, once, and a build that has ended stays as it is.
  test('cancel', async () => {
    const job = new Job()
    const waiting = job.waitFor('dispatch')
    expect(job.progress(0).waitsFor).toBe('dispatch')
    job.cancel()
    expect(await waiting.catch((error: BuildFailure) => error.errorType)).toBe('cancelled')
    expect(job.progress(0).waitsFor).toBeNull()
    const ended = new Job()
    ended.fail(new BuildFailure('build_failed', 'x'))
    ended.cancel()
    expect([ended.signal.aborted, ended.progress(0).result]).toEqual([
      false,
      { status: 'failed', error: 'x', errorType: 'build_failed' },
    ])
  })

  // Goal: nothing that a terminal acts on is left of a line.
  test('cleanLine', () => {
    expect(cleanLine('a\x1b[31mb\x1b[0m\tc\x1b]0;t\x07d\re\x00f\u202eg\u2028h\x9bi')).toBe('ab  cdefghi')
    expect(cleanLine('\x1b(B\x1b=x')).toBe('x')
  })
})
