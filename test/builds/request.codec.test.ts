// Goal: a build request is taken as written here or refused with the field at fault, whatever it holds.

import { expect, test } from 'bun:test'
import { parseBuildRequest, type RequestRules } from '../../src/builds/request.codec.ts'
import { faultOf } from '../rigs/fault-of.ts'

const upload = { path: '/u', sizeBytes: 3, sha256: 'ab'.repeat(32) }
const rules: RequestRules = {
  fetchHosts: ['git.example', 'other.example:8443=10.0.0.1'],
  rustMirror: 'https://rust.example/mirror',
  fetchCaSha256: 'cd'.repeat(32),
  cratesMirror: 'sparse+https://crates.example/',
}
const cacheUrl = 'https://git.example'
const cacheKey = `c-1:${'A'.repeat(43)}=`
const archive = { nonce: '00FF', source_data: 'x' }
const git = { nonce: '0a', repo_url: 'https://git.example/a.git' }

const parsed = (body: unknown, changes: Partial<RequestRules> = {}) =>
  parseBuildRequest(body, upload, { ...rules, ...changes })
const refused = (body: unknown, changes: Partial<RequestRules> = {}) => {
  const fault = faultOf(() => parsed(body, changes))
  expect(fault.code).toBe('invalid_request')
  return fault.param ?? `- ${fault.message}`
}

test('goal: an archive with nothing else, and a repository with everything else', () => {
  const plain = {
    projectDir: null,
    toolchain: null,
    reproduce: false,
    options: null,
    waivers: [],
    fetchCaSha256: null,
    cratesMirror: null,
  }
  expect(parsed(archive)).toEqual({ ...plain, nonce: '00ff', source: { kind: 'archive', name: null, upload } })
  expect(
    parsed({
      ...git,
      repo_ref: 'v1.0',
      project_dir: './a/./b/',
      toolchain: 'nix',
      output: "packages.x86_64-linux.it's-a_tool",
      nix_caches: [{ url: `${cacheUrl}/a`, public_key: cacheKey }],
      reproduce: true,
      allow_lfs_pointers: true,
      any_toolchain: true,
      fetch_ca_sha256: 'cd'.repeat(32),
      crates_mirror: 'sparse+https://crates.example/',
    }),
  ).toEqual({
    nonce: '0a',
    source: { kind: 'git', url: 'https://git.example/a.git', ref: 'v1.0' },
    projectDir: 'a/b',
    toolchain: 'nix',
    reproduce: true,
    options: {
      nix: { output: "packages.x86_64-linux.it's-a_tool", caches: [{ url: `${cacheUrl}/a`, publicKey: cacheKey }] },
    },
    waivers: ['allow_lfs_pointers', 'any_toolchain'],
    fetchCaSha256: 'cd'.repeat(32),
    cratesMirror: 'sparse+https://crates.example/',
  })
})

test('goal: a request waives only what it names with true', () => {
  const waiversOf = (fields: object) => parsed({ ...archive, ...fields }).waivers
  expect(waiversOf({ any_toolchain: true, allow_lfs_pointers: false })).toEqual(['any_toolchain'])
  expect(waiversOf({ any_toolchain: null, allow_lfs_pointers: true })).toEqual(['allow_lfs_pointers'])
  for (const name of ['allow_lfs_pointers', 'any_toolchain'])
    expect([name, refused({ ...archive, [name]: 'yes' })]).toEqual([name, name])
})

test('goal: an output is a path of attributes, and for Nix alone', () => {
  for (const output of [
    '',
    '.a',
    'a.',
    'a..b',
    'a b',
    'a#b',
    'a^out',
    'a?b',
    '-a',
    '1',
    'a\n',
    'a"b',
    `a${'b'.repeat(256)}`,
  ]) {
    expect([output, refused({ ...archive, output })]).toEqual([output, 'output'])
  }
  expect(refused({ ...archive, output: 'a', toolchain: 'cargo' })).toBe('output')
  expect(parsed({ ...archive, output: 'hello' }).options).toEqual({ nix: { output: 'hello', caches: [] } })
})

test('goal: a cache is of an allowed host, without settings in its address, and has one key of its name', () => {
  const cache = { url: cacheUrl, public_key: cacheKey }
  const other = { url: `${cacheUrl}/b`, public_key: cacheKey }
  const changed = (change: object) => refused({ ...archive, nix_caches: [{ ...cache, ...change }] })
  expect(parsed({ ...archive, nix_caches: [cache, other] }).options).toEqual({
    nix: {
      output: null,
      caches: [
        { url: cacheUrl, publicKey: cacheKey },
        { url: `${cacheUrl}/b`, publicKey: cacheKey },
      ],
    },
  })
  for (const url of [
    'http://git.example',
    'file:///etc',
    'https://git.example?trusted=true',
    'https://git.example/ x',
  ]) {
    expect([url, changed({ url })]).toEqual([url, 'nix_caches'])
  }
  expect(changed({ url: 'https://none.example' })).toBe('nix_caches.0.url')
  expect(changed({ url: 'https://git.example:444' })).toBe('nix_caches.0.url')
  for (const key of ['', 'c-1', 'c-1:AAAA', `a b:${'A'.repeat(43)}=`, `c-1:${'A'.repeat(43)}= x`]) {
    expect([key, changed({ public_key: key })]).toEqual([key, 'nix_caches'])
  }
  expect(refused({ ...archive, nix_caches: [cache, cache] })).toBe('nix_caches.1.url')
  const renamed = { ...other, public_key: `c-1:${'B'.repeat(43)}=` }
  expect(refused({ ...archive, nix_caches: [cache, renamed] })).toBe('nix_caches.0.public_key')
  expect(refused({ ...archive, nix_caches: [cache], toolchain: 'cargo' })).toBe('nix_caches')
  expect(refused({ ...archive, nix_caches: Array(9).fill(cache) })).toBe('nix_caches')
})

test('goal: options of Cargo are names that cargo takes, bounded, and for Cargo alone', () => {
  const all = {
    ...{ package: 'cli', bin: 'tool.x', features: ['a', 'dep/b', 'dep?/c'], no_default_features: true },
    ...{ profile: 'dist', target: 'x86_64-unknown-linux-gnu', rust_mirror: 'https://rust.example/mirror' },
  }
  expect(parsed({ ...archive, ...all }).options).toEqual({
    cargo: {
      package: 'cli',
      bin: 'tool.x',
      features: ['a', 'dep/b', 'dep?/c'],
      noDefaultFeatures: true,
      profile: 'dist',
      target: 'x86_64-unknown-linux-gnu',
      rustMirror: 'https://rust.example/mirror',
    },
  })
  const none = { package: null, bin: null, features: [], noDefaultFeatures: false, profile: null, target: null }
  expect(parsed({ ...archive, bin: 'tool' }).options).toEqual({ cargo: { ...none, bin: 'tool' } })
  expect(parsed({ ...archive, features: [], no_default_features: false, package: null }).options).toBeNull()
  const wrong: [string, unknown[]][] = [
    ['package', ['', '-p', '--config=x', 'a b', 'a@1.0', 'path+file:///x', 'x'.repeat(129), 7]],
    ['bin', ['', '-x', '../x', 'a/b', 'x'.repeat(129)]],
    [
      'features',
      ['a', ['-x'], ['a,b'], ['a b'], ['a', 'a'], [''], ['a/b/c'], ['/a'], Array(65).fill('a'), ['x'.repeat(129)]],
    ],
    ['no_default_features', ['yes', 1]],
    ['profile', ['', '-r', 'a b', 'x'.repeat(65)]],
    ['target', ['', '-t', './t.json', 'a/b', 'X86', 'x'.repeat(65)]],
    // The last one is another mirror than the service's own.
    ['rust_mirror', ['', 'rust.example', 'http://rust.example', 'https://rust.example/', 'https://rust.example']],
  ]
  for (const [field, values] of wrong) {
    for (const value of values) {
      expect([value, refused({ ...archive, [field]: value })]).toEqual([value, field])
    }
  }
  const messageOf = (fields: object) => faultOf(() => parsed({ ...archive, ...fields })).message
  expect(messageOf({ package: 'a', toolchain: 'nix' })).toBe(
    'package is for Cargo, and toolchain is nix: leave out one of them.',
  )
  expect(messageOf({ features: ['a'], output: 'b' })).toBe(
    'features is for Cargo, and output is for Nix: leave out one of them.',
  )
})

test('goal: a registry of npm or pnpm belongs to its toolchain and to the hosts that are listed', () => {
  const address = 'https://git.example/npm'
  expect(parsed({ ...archive, npm_registry: address }).options).toEqual({ npm: { registry: address } })
  expect(parsed({ ...archive, pnpm_registry: address }).options).toEqual({ pnpm: { registry: address } })
  for (const field of ['npm_registry', 'pnpm_registry']) {
    expect(refused({ ...archive, [field]: 'https://evil.example/' })).toBe(field)
    expect(refused({ ...archive, [field]: 'http://git.example/' })).toBe(field)
    expect(refused({ ...archive, [field]: `${address}?a=b` })).toBe(field)
  }
  expect(refused({ ...archive, toolchain: 'pnpm', npm_registry: address })).toBe('npm_registry')
})

test('goal: null stands for a field that is left out, but not for the nonce', () => {
  expect(parsed({ ...archive, repo_url: null, toolchain: null, project_dir: null }).source.kind).toBe('archive')
  expect(refused({ ...archive, nonce: null })).toBe('nonce')
})

test('goal: only an object is a request', () => {
  for (const body of [null, [], 'x', 7, [archive]]) expect(refused(body)).toBe('- The body must be a JSON object.')
})

test('goal: a nonce has 1 to 16 whole bytes', () => {
  for (const nonce of ['', '0', '0g', '000', '0'.repeat(34), 7, undefined]) {
    expect([nonce, refused({ ...archive, nonce })]).toEqual([nonce, 'nonce'])
  }
  for (const nonce of ['00', 'f'.repeat(32)]) expect(parsed({ ...archive, nonce }).nonce).toBe(nonce)
})

test('goal: one source, and what describes it belongs to it', () => {
  expect(refused({ nonce: '00' })).toBe('- Send exactly one of repo_url and source_data; there is neither.')
  expect(refused({ ...archive, ...git })).toBe('- Send exactly one of repo_url and source_data; there is both.')
  expect(refused({ ...archive, repo_ref: 'main' })).toBe('repo_ref')
  expect(refused({ ...git, source_name: 'a.zip' })).toBe('source_name')
  expect(faultOf(() => parseBuildRequest(archive, null, rules)).param).toBe('source_data')
  expect(faultOf(() => parseBuildRequest(archive, { ...upload, sizeBytes: 0 }, rules)).param).toBe('source_data')
})

test('goal: a field that there is not is named, unless its name is too long to repeat', () => {
  const unknown = '- The body has an unknown field.'
  expect(refused({ ...archive, frobnicate: 1 })).toBe('frobnicate')
  expect(refused({ ...archive, ['x'.repeat(64)]: 1 })).toBe('x'.repeat(64))
  expect(refused({ ...archive, ['x'.repeat(65)]: 1 })).toBe(unknown)
  expect(refused({ ...archive, reproduce: 'yes' })).toBe('reproduce')
  expect(refused({ ...archive, toolchain: 'uv' })).toBe('toolchain')
})

test('goal: a repository is an https address of a host that is listed, on its port', () => {
  const url = (repo_url: string) => refused({ nonce: '00', repo_url })
  for (const address of ['https://git.example/a', 'https://git.example:443/a', 'https://other.example:8443/a']) {
    expect(parsed({ nonce: '00', repo_url: address }).source).toEqual({ kind: 'git', url: address, ref: null })
  }
  for (const address of [
    'http://git.example/a',
    'ssh://git.example/a',
    'git.example/a',
    'https:///git.example/a',
    'https://user@git.example/a',
    'https://:pw@git.example/a',
    'https://git.example/a b',
    'https://git.example/a\\b',
    'https://git.example/a\x7f',
    'https://git.example/a?b',
    'https://git.example/a#b',
    'https://git.example:444/a',
    'https://other.example/a',
    'https://evil.example/a',
    'https://git.example.evil/a',
  ]) {
    expect([address, url(address)]).toEqual([address, 'repo_url'])
  }
})

test('goal: names of refs, files and directories cannot leave their place', () => {
  for (const repo_ref of ['-x', '.x', 'a b', 'a..b', 'a@{1}', 'a:b', 'a~1', 'a^']) {
    expect([repo_ref, refused({ ...git, repo_ref })]).toEqual([repo_ref, 'repo_ref'])
  }
  for (const repo_ref of ['main', 'feature/x', 'v1.0+b', 'a@b', '0'.repeat(40)]) {
    expect(parsed({ ...git, repo_ref }).source).toMatchObject({ ref: repo_ref })
  }
  for (const source_name of ['a/b', 'a\\b', '.', '..', 'a\n', 'a\x7f']) {
    expect([source_name, refused({ ...archive, source_name })]).toEqual([source_name, 'source_name'])
  }
  expect(parsed({ ...archive, source_name: '...' }).source).toMatchObject({ name: '...' })
  for (const project_dir of ['/a', 'a//b', '..', 'a/../b', '.git', 'a/.git/b', 'a\\b', 'a\n', '/']) {
    expect([project_dir, refused({ ...archive, project_dir })]).toEqual([project_dir, 'project_dir'])
  }
  expect(parsed({ ...archive, project_dir: '.' }).projectDir).toBeNull()
  expect(parsed({ ...archive, project_dir: 'a/.github' }).projectDir).toBe('a/.github')
})

test("goal: only the service's own authorities and mirror can be named", () => {
  const other = 'ee'.repeat(32)
  expect(refused({ ...archive, fetch_ca_sha256: other })).toBe('fetch_ca_sha256')
  expect(refused({ ...archive, fetch_ca_sha256: other }, { fetchCaSha256: null })).toBe('fetch_ca_sha256')
  expect(refused({ ...archive, crates_mirror: 'sparse+https://evil.example/' })).toBe('crates_mirror')
  expect(refused({ ...archive, crates_mirror: 'x' }, { cratesMirror: null })).toBe('crates_mirror')
  const rust = { ...archive, rust_mirror: 'https://rust.example/mirror' }
  expect(refused(rust, { rustMirror: null })).toBe('rust_mirror')
  expect(faultOf(() => parsed(rust, { rustMirror: 'https://other.example' })).message).toBe(
    'rust_mirror does not match the mirror of this service: that of this service is https://other.example.',
  )
  expect(faultOf(() => parsed({ ...archive, crates_mirror: 'x' })).message).toContain(
    'that of this service is sparse+https://crates.example/',
  )
  expect(faultOf(() => parsed({ ...archive, fetch_ca_sha256: other }, { fetchCaSha256: null })).message).toContain(
    'this service adds no certificate authorities',
  )
})

test('goal: a missing nonce, a wrong type of a known field and an unknown field each say so', () => {
  const message = (body: object) => faultOf(() => parseBuildRequest(body, upload, rules)).message
  for (const body of [{ source_data: 'x' }, { source_data: 'x', nonce: null }])
    expect(message(body)).toContain('is missing: send 16 random bytes in hexadecimal')
  expect(message({ ...archive, nonce: '0' })).toContain('must be 1 to 16 bytes in hexadecimal')
  expect(message({ ...archive, reproduce: 'yes' })).toContain('does not fit its schema')
  expect(message({ ...archive, colour: 'red' })).toBe('The body has an unknown field.')
})
