// Rows: flakes, locks and caches that try to falsify the list of what was fetched. Effects: makes caches and files
// where the servers have them.

import { gzipSync } from 'node:zlib'
import { tarOf } from '../../../../scripts/rigs/archive-bytes.ts'
import { places } from '../../../../src/builder/phase.ts'
import { type FetchServers, flakeInputHash, gitHost } from '../fetch-servers.ts'
import { fixed } from './forms.ts'
import { fixedPath, makeKey, makeLyingCache, narSha256Of, outputPath, sha256Of } from './lying-cache.ts'
import { derivation, emptyLock, flake, hello, lockOf, type Row } from './parts.ts'

const tarball = { type: 'tarball', url: `https://${gitHost}/input.tar.gz`, narHash: flakeInputHash() }
const ghost = { flake: false, locked: { ...tarball, url: 'https://innocent.example/audited.tar.gz' } }

export function hostileRows(servers: FetchServers): readonly Row[] {
  return [...OF_SOURCES, ...lockRows(servers), ...cacheRows(servers)]
}

const OF_SOURCES: readonly Row[] = [
  {
    what: 'inputs in the lock that no input of the flake leads to',
    always: true,
    files: flake(hello, { lock: lockOf({ ghost, other: ghost }, { names: [] }) }),
    fetches: true,
    ...{ artifacts: { hello: 'hello\n' }, lists: [] },
  },
  {
    what: 'an input in the lock that flake.nix does not name',
    files: flake(hello, { lock: lockOf({ ghost }) }),
    fetches: true,
    fails: /^source_invalid: flake\.lock does not match flake\.nix; run `nix flake lock`/,
  },
  {
    what: 'a lock with two lists of inputs',
    files: flake(hello, {
      lock: emptyLock().replace('{"nodes"', `{"nodes":{"ghost":${JSON.stringify(ghost)},"root":{}},"nodes"`),
    }),
    fails: /^source_invalid: flake\.lock: /,
  },
  {
    what: 'a lock whose root is another node',
    files: flake(hello, {
      lock: JSON.stringify({ nodes: { root: ghost, own: {} }, root: 'own', version: 7 }),
    }),
    ...{ artifacts: { hello: 'hello\n' }, lists: [] },
  },
  {
    what: 'a fixed output that only the evaluation needs',
    always: true,
    files: flake(
      derivation('hello', `echo \${builtins.readFile (${fixed('hidden', 'echo -n hidden > $out', 'hidden')})} > $out`),
    ),
    ...{ artifacts: { hello: 'hidden\n' }, lists: ['fixed hidden'] },
  },
  {
    what: 'attributes that speak of another fixed output',
    files: flake(
      derivation(
        'hello',
        `read x < \${${fixed('real', `echo real > \${builtins.placeholder "out"}`, 'real\n', `__json = ''{"name":"audited-1.0","url":"https://innocent.example/x"}'';`)}}; echo $x > $out`,
      ),
    ),
    ...{ artifacts: { hello: 'real\n' }, lists: ['fixed real'] },
  },
  {
    what: 'a derivation that changes a fixed output after its use',
    files: flake(
      `let known = ${fixed('known', 'echo known > $out', 'known\n')}; first = ${derivation('first', `chmod u+w \${known} || true; echo evil > \${known}; echo x > $out`)}; in ${derivation('hello', `read x < \${known}; read y < \${first}; echo $x > $out`)}`,
    ),
    fails: /^build_failed: (?:nix: a derivation changed paths of the store|nix build)/,
  },
  {
    what: 'settings of the flake',
    files: flake(derivation('hello', 'test -e /build/source && exit 9; echo hello > $out'), {
      head: 'nixConfig = { sandbox = false; post-build-hook = "/build/source/evil"; extra-sandbox-paths = [ "/build" ]; substitute = true; extra-substituters = [ "https://innocent.example" ]; require-sigs = false; };',
    }),
    ...{ artifacts: { hello: 'hello\n' }, lists: [] },
  },
  {
    what: 'a flake that writes a lock while it is evaluated',
    files: flake(`builtins.seq (builtins.getFlake "https://${gitHost}/input.tar.gz") (${hello})`),
    fetches: true,
    fails: /^(?:source_invalid|source_unreachable|build_failed): /,
  },
]

/** An evil tarball, and a lock whose `info` says that it is the honest one, which another input brings. */
function lockRows({ files }: FetchServers): readonly Row[] {
  const evil = { url: `https://${gitHost}/evil.tar.gz`, narHash: flakeInputHash({ text: 'evil\n' }) }
  const bytes = gzipSync(tarOf([{ name: 'input/text', content: 'evil\n' }]))
  files.set('/evil.tar.gz', bytes)
  const archive = fixedPath('source', sha256Of(bytes))
  const original = { type: 'tarball', url: tarball.url }
  const honest = { flake: false, locked: tarball, original }
  const row = (version: number, info: unknown, locked: object = tarball) => ({
    files: flake(derivation('hello', `read x < \${input}/text; read y < \${other}/text; echo $x $y > $out`), {
      head: ['input', 'other'].map(name => `inputs.${name} = { url = "${tarball.url}"; flake = false; };`).join(' '),
      args: 'self, input, other',
      lock: lockOf({ input: { flake: false, locked, info, original }, other: honest }, { version }),
    }),
    fetches: true,
  })
  const twoInputs = (other: string) => {
    const node = (url: string) => ({
      flake: false,
      locked: { type: 'tarball', ...evil, url },
      original: { type: 'tarball', url },
    })
    return {
      files: flake(derivation('hello', `read x < \${input}/text; read y < \${other}/text; echo $x $y > $out`), {
        head: `inputs.input = { url = "${evil.url}"; flake = false; }; inputs.other = { url = "${other}"; flake = false; };`,
        args: 'self, input, other',
        lock: lockOf({ input: node(evil.url), other: node(other) }),
      }),
      fetches: true,
    }
  }
  return [
    {
      // Nix has its path already, and does not ask that server.
      what: 'an address that never had the bytes, with the narHash of another input',
      always: true,
      ...twoInputs('https://innocent.example/audited.tar.gz'),
      fails: /^source_invalid: flake\.lock: the inputs "input" and "other" have one narHash and different addresses/,
    },
    {
      what: 'two inputs of one address',
      ...twoInputs(evil.url),
      ...{ artifacts: { hello: 'evil evil\n' }, lists: ['input'] },
    },
    ...([6, 7] as const).map(
      (version): Row => ({
        what: `a lock of version ${version} whose "info" names another tarball than "locked"`,
        ...(version === 7 ? { always: true } : {}),
        ...row(version, evil),
        fails: /^source_invalid: flake\.lock: input "input" has "info", .*delete it and run `nix flake lock`/,
      }),
    ),
    {
      what: 'a lock of version 5 whose "info" names another tarball than "locked"',
      ...row(5, evil),
      ...{ artifacts: { hello: 'evil from elsewhere\n' }, lists: ['input', 'input'] },
    },
    {
      what: 'a lock of version 5 whose "info" says that the input is a path of the flake',
      ...row(5, { type: 'path', path: '/etc' }),
      fails: /^source_invalid: flake\.lock: input "input" is the path "\/etc"/,
    },
    {
      what: 'an input that is a path of the flake, beside an "info" that names a tarball',
      ...row(7, { type: 'tarball', ...evil }, { type: 'path', path: './part' }),
      fails: /^source_invalid: flake\.lock: input "input" has "info"/,
    },
    {
      what: 'a lock of version 5 with an "info" that is a list',
      ...row(5, [evil]),
      fails: /^source_invalid: flake\.lock: input "input" has "info"/,
    },
    {
      what: 'a tarball with something beside the files that its narHash covers',
      // Nix before 2.26 keeps the archive in the store, where a text with its path can lead to it.
      files: flake(
        derivation(
          'hello',
          `test -e \${builtins.appendContext "${archive}" { "${archive}" = { path = true; }; }} && echo evil > $out`,
        ),
        {
          head: `inputs.input = { url = "${evil.url}"; flake = false; };`,
          args: 'self, input',
          lock: lockOf({
            input: { flake: false, locked: { type: 'tarball', ...evil }, original: { type: 'tarball', url: evil.url } },
          }),
        },
      ),
      fetches: true,
      fails: /^build_failed: .*-source' (?:does not exist|is not valid)/s,
    },
  ]
}

function cacheRows(servers: FetchServers): readonly Row[] {
  const key = makeKey()
  const [honest, evil] = ['honest\n', 'evil, though it is signed\n']
  const user = (value: string) => flake(derivation('hello', `read x < \${${value}}; echo $x > $out`))
  const [flat, recursive] = [
    fixed('flat.txt', 'exit 9', honest),
    fixed('tree.txt', 'exit 9', '').replace(
      /outputHashMode.*outputHash = "[^"]*"/,
      `outputHashMode = "recursive"; outputHashAlgo = "sha256"; outputHash = "${narSha256Of(honest)}"`,
    ),
  ]
  const flatPath = fixedPath('flat.txt', sha256Of(honest))
  const treePath = fixedPath('tree.txt', narSha256Of(honest), 'recursive')
  const cache = (name: string, ...told: Parameters<typeof makeLyingCache>[2]['told']) => ({
    options: { caches: [makeLyingCache(servers, name, { key, told })] },
    fetches: true,
  })
  return [
    {
      what: 'a cache with other bytes for a fixed output, signed',
      always: true,
      files: user(flat),
      ...cache('flat', { path: flatPath, text: evil }),
      fails: /^checksum_mismatch: nix: the fixed output "flat\.txt" does not match its hash/,
    },
    {
      what: 'a cache with a link for a fixed output, which leads to the right bytes while it is hashed',
      files: { ...user(flat), 'flat.txt': honest },
      ...cache('link', { path: flatPath, text: `${places.source}/flat.txt`, form: 'link' }),
      fails: /^(?:build_failed: |checksum_mismatch: nix: the fixed output "flat\.txt" does not match its hash)/,
    },
    {
      what: 'a cache with a link for a fixed output that no derivation reads',
      files: {
        ...flake(derivation('hello', `echo hello > $out; : \${${flat}}`)),
        'flat.txt': honest,
      },
      ...cache('unread', { path: flatPath, text: `${places.source}/flat.txt`, form: 'link' }),
      fails: /^checksum_mismatch: nix: the fixed output "flat\.txt" does not match its hash/,
    },
    {
      what: 'a cache with a link for a recursive fixed output that no derivation reads',
      files: { ...flake(derivation('hello', `echo hello > $out; : \${${recursive}}`)), 'tree.txt': honest },
      ...cache('tree-link', { path: treePath, text: `${places.source}/tree.txt`, form: 'link' }),
      fails: /^checksum_mismatch: nix: the fixed output "tree\.txt" does not match its hash/,
    },
    {
      what: 'a cache with a program for a fixed output that is none',
      files: user(flat),
      ...cache('program', { path: flatPath, text: honest, form: 'program' }),
      fails: /^checksum_mismatch: nix: the fixed output "flat\.txt" does not match its hash/,
    },
    {
      what: 'a cache with other bytes for a recursive fixed output, signed',
      files: user(recursive),
      ...cache('tree', { path: treePath, text: evil }),
      fails: /^checksum_mismatch: nix: the fixed output "tree\.txt" does not match its hash/,
    },
    {
      what: 'a cache with other bytes for a fixed output, and the content address of these bytes',
      files: user(flat),
      ...cache('address', { path: flatPath, text: evil, contentAddress: `fixed:sha256:${sha256Of(evil)}` }),
      // Nix itself refuses it.
      fails: /^(?:source_unreachable|checksum_mismatch): nix_caches: /,
    },
    {
      what: 'a cache with the bytes of a fixed output',
      files: user(flat),
      ...cache('honest', { path: flatPath, text: honest, contentAddress: `fixed:sha256:${sha256Of(honest)}` }),
      ...{ artifacts: { hello: 'honest\n' }, lists: ['fixed flat.txt'] },
    },
    {
      what: 'a cache that hides what another cache says that a path refers to',
      always: true,
      ...hidden(servers, key),
    },
  ]
}

/** The first cache names no reference and has no signature, so Nix takes the path from the second one. */
function hidden(servers: FetchServers, key: ReturnType<typeof makeKey>) {
  const library = derivation('library', 'exit 9')
  const path = outputPath(library)
  const hiddenPath = fixedPath('hidden.txt', '0'.repeat(64))
  const told = { path, text: `${hiddenPath}\n` }
  const first = [{ ...told, isSigned: false }]
  const second = [
    { ...told, references: [hiddenPath] },
    { path: hiddenPath, text: 'hidden\n' },
  ]
  return {
    files: flake(derivation('hello', `read x < \${${library}}; read y < $x; echo $y > $out`)),
    options: {
      caches: [
        makeLyingCache(servers, 'first', { key, told: first, priority: 10 }),
        makeLyingCache(servers, 'second', { key, told: second, priority: 40 }),
      ],
    },
    fetches: true,
    ...{ artifacts: { hello: 'hidden\n' }, lists: ['path hidden.txt', 'path library'] },
  }
}
