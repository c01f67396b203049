// Rows: forms of flakes that people write. Effects: makes repositories and caches where the servers have them.

import { createHash } from 'node:crypto'
import { plainProject } from '../../../../scripts/rigs/build/sources.ts'
import {
  type FetchServers,
  flakeInput,
  flakeInputFiles,
  flakeInputHash,
  flakeWithInput,
  flakeWithRepository,
  gitHost,
  makeRepository,
  repositoryNode,
} from '../fetch-servers.ts'
import { flakeOnStdenv, makeNixCache } from '../nix-cache.ts'
import { derivation, emptyLock, flake, hello, lockOf, type Row } from './parts.ts'

const sri = (text: string | Uint8Array) => `sha256-${createHash('sha256').update(text).digest('base64')}`
const tarball = { type: 'tarball', url: `https://${gitHost}/input.tar.gz` }

/** A derivation whose output has this hash, whatever its builder does. */
export const fixed = (name: string, script: string, text: string, more = '') =>
  derivation(name, script, `outputHashMode = "flat"; outputHashAlgo = "sha256"; outputHash = "${sri(text)}"; ${more}`)

/** Nix's own way to fetch a file, as the first tools of nixpkgs do. */
export const builtinFetch = (hash: string, url = tarball.url) =>
  `derivation { name = "input.tar.gz"; system = "builtin"; builder = "builtin:fetchurl"; url = "${url}"; urls = [ "${url}" ]; executable = false; unpack = false; preferLocalBuild = true; outputHashMode = "flat"; outputHashAlgo = "sha256"; outputHash = "${hash}"; }`

/** Reads an input whose lock is of an older version. */
const oldLock = (version: 5 | 6) => {
  const narHash = flakeInputHash()
  const node =
    version === 5
      ? { flake: false, info: { narHash }, locked: tarball }
      : { flake: false, locked: { ...tarball, narHash } }
  return {
    ...flakeWithInput(narHash),
    'flake.lock': lockOf({ input: { ...node, original: tarball } }, { version }),
  }
}

/** A flake whose value reads a file of its input. */
const libFiles = {
  'flake.nix': `{ inputs.text = { url = "${tarball.url}"; flake = false; }; outputs = { self, text }: { value = ${derivation('hello', `read x < \${text}/text; echo $x > $out`)}; }; }\n`,
}

export function formRows(servers: FetchServers): readonly Row[] {
  const repository = makeRepository(servers, 'corpus', flakeInputFiles)
  const good = makeNixCache(servers, 'corpus')
  const lib = makeRepository(servers, 'lib', libFiles)
  const libNode = repositoryNode(lib, flakeInputHash(libFiles))
  const usesLib = `inputs.lib.url = "git+${lib.url}?ref=main";`
  const unused = { flake: false, locked: { ...tarball, narHash: flakeInputHash() }, original: tarball }
  const declared = `inputs.input = { url = "${tarball.url}"; flake = false; };`
  return [
    {
      what: 'no input, and a lock of version 7',
      files: flake(hello),
      ...{ artifacts: { hello: 'hello\n' }, lists: [] },
    },
    {
      what: 'no input, and a lock of version 5',
      files: flake(hello, { lock: emptyLock(5) }),
      ...{ artifacts: { hello: 'hello\n' }, lists: [] },
    },
    ...([5, 6] as const).map(
      (version): Row => ({
        what: `a tarball in a lock of version ${version}`,
        files: oldLock(version),
        fetches: true,
        ...{ artifacts: { hello: 'from elsewhere\n' }, lists: ['input'] },
      }),
    ),
    {
      what: 'a tarball in a lock of version 7',
      files: flakeWithInput(flakeInputHash()),
      fetches: true,
      ...{ artifacts: { hello: 'from elsewhere\n' }, lists: ['input'] },
    },
    {
      what: 'a Git repository as input',
      always: true,
      files: flakeWithRepository(repository, flakeInputHash()),
      fetches: true,
      ...{ artifacts: { hello: 'from elsewhere\n' }, lists: ['input'] },
    },
    {
      what: 'a flake as input, with an input of its own',
      files: flake('lib.value', {
        head: usesLib,
        args: 'self, lib',
        lock: lockOf({ lib: { ...libNode, inputs: { text: 'text' } }, text: unused }, { names: ['lib'] }),
      }),
      fetches: true,
      ...{ artifacts: { hello: 'from elsewhere\n' }, lists: ['input', 'input'] },
    },
    {
      what: 'a flake as input, whose own input follows one of this flake',
      files: flake('lib.value', {
        head: `${usesLib} ${declared} inputs.lib.inputs.text.follows = "input";`,
        args: 'self, lib, input',
        lock: lockOf({ lib: { ...libNode, inputs: { text: ['input'] } }, input: unused }),
      }),
      fetches: true,
      ...{ artifacts: { hello: 'from elsewhere\n' }, lists: ['input', 'input'] },
    },
    {
      what: 'an input that nothing uses',
      files: flake(hello, { head: declared, args: 'self, input', lock: lockOf({ input: unused }) }),
      fetches: true,
      ...{ artifacts: { hello: 'hello\n' }, lists: ['input'] },
    },
    {
      what: 'an input that is a directory of the flake',
      since26: true,
      files: {
        ...flake('part.value', {
          head: 'inputs.part.url = "path:./part";',
          args: 'self, part',
          lock: lockOf({ part: { locked: { path: './part', type: 'path' }, parent: [] } }),
        }),
        'part/flake.nix': `{ outputs = { self }: { value = ${hello}; }; }\n`,
      },
      ...{ artifacts: { hello: 'hello\n' }, lists: [] },
    },
    {
      what: 'a binary cache, a derivation between, and fixed outputs',
      always: true,
      files: flakeOnStdenv(),
      options: { caches: [good.cache] },
      fetches: true,
      artifacts: { hello: 'with stdenv of base\nwith stdenv of base, from elsewhere\n' },
      lists: ['fixed flat.tar.gz', 'fixed unpacked', 'path base-1.0', 'path stdenv-1.0'],
    },
    {
      what: 'a derivation with several outputs',
      files: flake(derivation('tool', 'echo tool > $out; echo header > $dev', 'outputs = [ "out" "dev" ];')),
      ...{ artifacts: { tool: 'tool\n' }, lists: [] },
    },
    {
      what: 'another output than the default',
      files: {
        ...flake(hello),
        'flake.nix': `{ outputs = { self }: { packages.x86_64-linux.default = ${hello}; checks.x86_64-linux."test-1" = ${derivation('checked', 'echo checked > $out')}; }; }\n`,
      },
      options: { output: 'checks.x86_64-linux.test-1' },
      ...{ artifacts: { checked: 'checked\n' }, lists: [] },
    },
    {
      what: 'the default package by its older name',
      files: flake(hello, { output: 'defaultPackage.x86_64-linux' }),
      ...{ artifacts: { hello: 'hello\n' }, lists: [] },
    },
    {
      what: 'a directory with files of one name, and links',
      files: flake(
        derivation(
          'tree',
          'mkdir -p $out/a $out/b; echo 1 > $out/a/x; echo 2 > $out/b/x; echo 3 > $out/y; ln -s a/x $out/link; ln -s /nowhere $out/b/broken',
        ),
      ),
      ...{ artifacts: { 'a/x': '1\n', 'b/x': '2\n', y: '3\n' }, lists: [] },
      logs: /not among the artifacts, because they are links, 2: .*link/,
    },
    {
      what: 'files of the source, and a text that the flake makes',
      files: {
        ...flake(
          derivation('hello', `read a < \${./data}; read b < \${builtins.toFile "made" "made\\n"}; echo $a $b > $out`),
        ),
        data: 'data\n',
      },
      ...{ artifacts: { hello: 'data made\n' }, lists: [] },
    },
    {
      what: 'a fixed output that the build makes itself',
      always: true,
      files: flake(
        derivation('hello', `read x < \${${fixed('known', 'echo known > $out', 'known\n')}}; echo $x > $out`),
      ),
      ...{ artifacts: { hello: 'known\n' }, lists: ['fixed known'] },
    },
    {
      what: 'a file that Nix fetches by itself',
      files: flake(derivation('hello', `test -s \${${builtinFetch(sri(flakeInput))}} && echo fetched > $out`)),
      fetches: true,
      ...{ artifacts: { hello: 'fetched\n' }, lists: ['fixed input.tar.gz'] },
    },
    {
      what: 'a fixed output that no build needs',
      files: flake(
        `let unused = ${fixed('unused', 'echo unused > $out', 'unused\n')}; in ${derivation('hello', 'echo hello > $out', 'UNUSED = builtins.unsafeDiscardStringContext unused.drvPath;')}`,
      ),
      ...{ artifacts: { hello: 'hello\n' }, lists: [] },
    },
    {
      what: 'an evaluation that builds, and no cache',
      files: flake(
        derivation(
          'hello',
          `echo \${builtins.readFile ${parenthesized(derivation('text', 'echo -n generated > $out'))}} > $out`,
        ),
      ),
      ...{ artifacts: { hello: 'generated\n' }, lists: [] },
    },
    {
      what: 'a flake in a directory',
      files: Object.fromEntries(Object.entries(flake(hello)).map(([path, text]) => [`nix/${path}`, text])),
      projectDir: 'nix',
      ...{ artifacts: { hello: 'hello\n' }, lists: [] },
    },
    {
      what: 'a flake with inputs beside a Cargo project, and no service that fetches',
      files: { ...plainProject, ...flakeWithInput(flakeInputHash()) },
      ...{ artifacts: { hello: '' }, lists: null },
      logs: /flake\.nix cannot be built: flake\.lock: 1 inputs from elsewhere, and this service fetches nothing; Cargo\.toml/,
    },
    {
      what: 'a flake without inputs beside a Cargo project',
      files: { ...plainProject, ...flake(hello) },
      ...{ artifacts: { hello: 'hello\n' }, lists: [] },
      logs: /flake\.nix needs no unavailable input, and takes precedence/,
    },
  ]
}

function parenthesized(text: string): string {
  return `(${text})`
}
