// Binary caches of Debian's Nix, made in a store of their own and served by the servers of a build's fetch. Effects:
// needs root; programs, files below the servers' directory.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { SourceFiles } from '../../../scripts/rigs/build/sources.ts'
import { succeed } from '../../../scripts/rigs/guest/root.ts'
import { type FetchServers, flakeInput, flakeInputHash, gitHost } from './fetch-servers.ts'

/** A library and a tool that uses it, which a flake builds on as packages do on stdenv and its closure. */
const tools = `rec {
  base = derivation { name = "base-1.0"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo base > $out" ]; };
  stdenv = derivation { name = "stdenv-1.0"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo 'read x < \${base}; echo with stdenv of $x' > $out" ]; };
}`

export type NixCache = {
  readonly cache: { readonly url: string; readonly publicKey: string }
  readonly dir: string
  /** Paths that it has, by the part of the name after the digest. */
  readonly paths: Readonly<Record<string, string>>
}

/** A cache of `stdenv` and all that it needs, signed with a new key of this name. */
export function makeNixCache({ repositories }: FetchServers, name: string, keyName = 'test-1'): NixCache {
  const root = fs.mkdtempSync(join(tmpdir(), 'strongroom-nix-cache-'))
  const dir = join(repositories, `${name}-cache`)
  try {
    for (const sub of ['nix', 'home']) fs.mkdirSync(join(root, sub))
    fs.writeFileSync(join(root, 'tools.nix'), tools)
    const bind = (from: string, to = from) => ['--bind', from, to]
    const options = { 'build-users-group': '', substituters: '', 'sandbox-paths': '/bin/sh=/usr/bin/busybox' }
    const nix = (program: string, ...argv: readonly string[]) =>
      succeed([
        ...[
          'bwrap',
          '--unshare-user',
          '--unshare-pid',
          '--unshare-net',
          '--ro-bind',
          '/usr',
          '/usr',
          '--tmpfs',
          '/tmp',
        ],
        ...['bin', 'lib', 'lib64'].flatMap(link => ['--symlink', `usr/${link}`, `/${link}`]),
        ...['--ro-bind', '/etc', '/etc', '--proc', '/proc', '--dev', '/dev'],
        ...[...bind(join(root, 'nix'), '/nix'), ...bind(root), ...bind(repositories)],
        ...['--clearenv', '--setenv', 'PATH', '/usr/bin', '--setenv', 'HOME', join(root, 'home')],
        ...['--setenv', 'NIX_REMOTE', 'local', '--', program, '--extra-experimental-features', 'nix-command'],
        ...Object.entries(options).flatMap(([option, value]) => ['--option', option, value]),
        ...argv,
      ]).trim()
    fs.writeFileSync(join(root, 'secret'), nix('nix', 'key', 'generate-secret', '--key-name', keyName))
    const built = nix('nix-build', join(root, 'tools.nix'), '-A', 'stdenv', '--no-out-link')
    nix('nix', 'copy', '--to', `file://${dir}?secret-key=${join(root, 'secret')}`, built)
    const secret = fs.readFileSync(join(root, 'secret'), 'utf8').split(':')[1] ?? ''
    // The second half of a secret key is the public one (libsodium's form).
    const publicKey = `${keyName}:${Buffer.from(secret, 'base64').subarray(32).toString('base64')}`
    const infos = fs.readdirSync(dir).filter(file => file.endsWith('.narinfo'))
    const paths = infos.map(
      file => /^StorePath: \/nix\/store\/(.*)$/m.exec(fs.readFileSync(join(dir, file), 'utf8'))?.[1],
    )
    return {
      cache: { url: `https://${gitHost}/${name}-cache`, publicKey },
      dir,
      paths: Object.fromEntries(paths.map(path => [path?.slice(33), path ?? ''])),
    }
  } finally {
    succeed(['chmod', '--recursive', 'u+w', root])
    fs.rmSync(root, { recursive: true })
  }
}

/** narHash (hexadecimal) and archive of a path as its cache describes them. */
export function narOf({ dir }: NixCache, storePath: string): { readonly narSha256: string; readonly file: string } {
  const info = fs.readFileSync(join(dir, `${storePath.slice(0, 32)}.narinfo`), 'utf8')
  const file = join(dir, /^URL: (.*)$/m.exec(info)?.[1] ?? '')
  const nar = Bun.spawnSync(['xz', '--decompress', '--stdout', file]).stdout
  return { narSha256: createHash('sha256').update(nar).digest('hex'), file }
}

const flatHash = createHash('sha256').update(flakeInput).digest('base64')

/** Fixed outputs whose own builders must not run: each exits with a failure. */
export const fixedOutputs = {
  flat: { mode: 'flat', hash: `sha256-${flatHash}`, url: `https://${gitHost}/input.tar.gz` },
  unpacked: { mode: 'recursive', hash: flakeInputHash(), url: `https://${gitHost}/input.tar.gz` },
} as const

type Fixed = { readonly mode: string; readonly hash: string; readonly url: string }

/** A flake on `stdenv`, with a derivation between that is in no cache, and fixed outputs. */
export function flakeOnStdenv({
  flat = fixedOutputs.flat,
  unpacked = fixedOutputs.unpacked,
  head = '',
  value = 'top',
}: {
  flat?: Fixed
  unpacked?: Fixed
  head?: string
  value?: string
} = {}): SourceFiles {
  const fixed = (name: string, { mode, hash, url }: Fixed) =>
    `derivation { name = "${name}"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo R'A'N >&2; exit 9" ]; url = "${url}"; outputHashMode = "${mode}"; outputHashAlgo = "sha256"; outputHash = "${hash}"; }`
  return {
    'flake.nix': `{ ${head} outputs = { self }: let
  tools = ${tools};
  flat = ${fixed('flat.tar.gz', flat)};
  unpacked = ${fixed('unpacked', unpacked)};
  middle = derivation { name = "middle"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" ". \${tools.stdenv} > $out" ]; };
  top = derivation { name = "hello"; system = "x86_64-linux"; builder = "/bin/sh";
    args = [ "-c" "read a < \${middle}; read b < \${unpacked}/text; test -s \${flat} && . \${tools.stdenv} > $out && echo $a, $b >> $out" ]; };
in { packages.x86_64-linux.default = ${value}; }; }
`,
    'flake.lock': '{"nodes":{"root":{}},"root":"root","version":7}',
  }
}
