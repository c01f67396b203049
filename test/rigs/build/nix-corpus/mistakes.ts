// Rows: mistakes in flakes, each with the message that names cause and remedy. Effects: makes caches where the servers
// have them.

import * as fs from 'node:fs'
import { join } from 'node:path'
import { type FetchServers, flakeInputHash, flakeWithInput, gitHost, refusedHost } from '../fetch-servers.ts'
import { flakeOnStdenv, makeNixCache } from '../nix-cache.ts'
import { builtinFetch, fixed } from './forms.ts'
import { derivation, emptyLock, flake, hello, lockOf, type Row } from './parts.ts'

const tarball = { type: 'tarball', url: `https://${gitHost}/input.tar.gz` }
const otherHash = `sha256-${'A'.repeat(43)}=`
const input = (locked: object, url: string, original = locked) =>
  flake(hello, {
    head: `inputs.input = { url = "${url}"; flake = false; };`,
    args: 'self, input',
    lock: lockOf({ input: { flake: false, locked, original } }),
  })
const forge = { type: 'github', owner: 'o', repo: 'r', rev: 'ab'.repeat(20), narHash: flakeInputHash() }

export function mistakeRows(servers: FetchServers): readonly Row[] {
  const good = makeNixCache(servers, 'good')
  const foreign = makeNixCache(servers, 'foreign')
  const missing = makeNixCache(servers, 'missing')
  fs.rmSync(join(missing.dir, `${missing.paths['base-1.0']?.slice(0, 32)}.narinfo`))
  const { 'flake.nix': alone = '' } = flake(hello)
  return [
    {
      what: 'no lock',
      files: { 'flake.nix': alone },
      fails: /^lock_missing: source: flake\.nix without flake\.lock; run `nix flake lock`/,
    },
    {
      what: 'no default package',
      files: flake(hello, { output: 'packages.x86_64-linux.other' }),
      fails: /^source_invalid: the flake does not define this package; select another with output \(--flake-output\)/,
    },
    {
      what: 'an output that the flake lacks',
      files: flake(hello),
      options: { output: 'packages.x86_64-linux.none' },
      fails: /^source_invalid: the flake does not define this package; select another with output \(--flake-output\)/,
    },
    {
      what: 'an output that is no derivation',
      files: flake('{ a = 1; }'),
      fails:
        /^source_invalid: this output of the flake is not a derivation; select a package with output \(--flake-output\)/,
    },
    {
      what: 'a derivation for another system',
      files: flake(hello.replace('x86_64-linux', 'aarch64-linux')),
      fails: /^source_invalid: a derivation is for a system other than x86_64-linux/,
    },
    {
      what: 'a derivation that needs a virtual machine',
      files: flake(derivation('hello', 'echo hello > $out', 'requiredSystemFeatures = [ "kvm" ];')),
      fails: /^source_invalid: a derivation needs a feature that the builder lacks/,
    },
    {
      what: 'a lock that does not fit its flake',
      files: flake(hello, { head: `inputs.input.url = "${tarball.url}";`, args: 'self, input' }),
      fails: /^source_unreachable: the flake fetches an input that flake\.lock does not list, .*run `nix flake lock`/,
    },
    {
      what: 'a lock that does not fit its flake, and a service that fetches',
      files: flake(hello, {
        head: `inputs.input = { url = "${tarball.url}"; flake = false; };`,
        args: 'self, input',
        lock: lockOf({ other: { flake: false, locked: { ...tarball, narHash: flakeInputHash() }, original: tarball } }),
      }),
      fetches: true,
      fails: /^source_invalid: flake\.lock does not match flake\.nix; run `nix flake lock`/,
    },
    {
      what: 'a lock of a version that is yet to come',
      files: flake(hello, { lock: emptyLock(8) }),
      fails: /^source_invalid: flake\.lock: not of version 5, 6 or 7; delete it and run `nix flake lock`/,
    },
    {
      what: 'a lock without narHash',
      files: input(tarball, tarball.url),
      fetches: true,
      fails:
        /^checksum_mismatch: flake\.lock: input "input" has no narHash, .*`nix flake lock --option lazy-trees false`/,
    },
    {
      what: 'a lock with marks of a merge',
      files: flake(hello, { lock: `<<<<<<< HEAD\n${emptyLock()}\n=======\n>>>>>>> other\n` }),
      fails: /^source_invalid: flake\.lock: it contains merge conflict markers; run `nix flake lock`/,
    },
    {
      what: 'an input with an absolute path',
      files: input({ type: 'path', path: '/opt/parts/input', narHash: flakeInputHash() }, 'path:/opt/parts/input'),
      fails: /^source_invalid: flake\.lock: input "input" is the path "\/opt\/parts\/input", .*`path:\.\/DIR`/,
    },
    {
      what: 'an input beside the flake',
      files: input({ type: 'path', path: '../input', narHash: flakeInputHash() }, 'path:../input'),
      fails: /^source_invalid: flake\.lock: input "input" is the path "\.\.\/input", which is not in the directory/,
    },
    {
      what: 'an input of a forge on a host that is not allowed',
      files: input({ ...forge, host: refusedHost }, `github:o/r?host=${refusedHost}`, {
        type: 'github',
        owner: 'o',
        repo: 'r',
        host: refusedHost,
      }),
      fetches: true,
      fails: /^source_unreachable: .*ask the operator which hosts are allowed: .*refused\.strongroom\.test/s,
    },
    {
      what: 'inputs, and a service that fetches nothing',
      files: flakeWithInput(flakeInputHash()),
      fails: /^source_unreachable: flake\.lock: 1 inputs from elsewhere, and this service fetches nothing/,
    },
    {
      what: 'an input with another hash than the lock has',
      files: flakeWithInput(otherHash),
      fetches: true,
      fails:
        /^checksum_mismatch: an input does not match its narHash in flake\.lock; compare .* run `nix flake update NAME`/,
    },
    {
      what: 'a fixed output that the build makes otherwise',
      always: true,
      files: flake(
        derivation('hello', `read x < \${${fixed('known', 'echo other > $out', 'known\n')}}; echo $x > $out`),
      ),
      fails: /^checksum_mismatch: the output of a derivation does not match the hash in the flake/,
    },
    {
      what: 'a fetch by Nix itself, and a service that fetches nothing',
      files: flake(derivation('hello', `test -s \${${builtinFetch(otherHash)}} && echo > $out`)),
      fails:
        /^source_unreachable: a derivation fetches a file, but builds run without a network; add the file to the source/,
    },
    {
      what: 'a fetch by Nix itself with another hash',
      files: flake(derivation('hello', `test -s \${${builtinFetch(otherHash)}} && echo > $out`)),
      fetches: true,
      fails: /^checksum_mismatch: nix: the fixed output input\.tar\.gz /,
    },
    {
      what: 'a file that is fetched while the flake is evaluated',
      files: flake(
        derivation(
          'hello',
          `test -s \${builtins.fetchurl { url = "${tarball.url}"; sha256 = "${'0'.repeat(52)}"; }} && echo > $out`,
        ),
      ),
      fetches: true,
      fails: /^source_unreachable: the flake fetches an input that flake\.lock does not list, .*inputs of flake\.nix/,
    },
    {
      what: 'a derivation that uses the network',
      always: true,
      files: flake(
        derivation('hello', `busybox wget -O $out http://${gitHost}/ || /bin/sh -c "wget -O $out http://${gitHost}/"`),
      ),
      fails: /^build_failed: /,
    },
    {
      what: 'a path outside of the flake',
      files: flake(derivation('hello', `read x < \${/etc/hostname}; echo $x > $out`)),
      fails: /^source_invalid: the flake reads a file outside of the source; add the file to the source/,
    },
    {
      what: 'an evaluation that builds, with a cache',
      files: flake(
        derivation('hello', `echo \${builtins.readFile (${derivation('text', 'echo -n generated > $out')})} > $out`),
      ),
      fetches: true,
      options: { caches: [good.cache] },
      fails: /^source_invalid: the flake builds a derivation during evaluation, which is not allowed/,
    },
    {
      what: 'a binary cache without a path that is needed',
      files: flakeOnStdenv(),
      fetches: true,
      options: { caches: [missing.cache] },
      fails: /^source_unreachable: nix: .*base-1\.0 is in no cache of the request, .*nix_caches/,
    },
    {
      what: 'a binary cache with another key',
      files: flakeOnStdenv(),
      fetches: true,
      options: { caches: [{ ...good.cache, publicKey: foreign.cache.publicKey }] },
      fails: /^checksum_mismatch: nix_caches: a path has other bytes .*check the key of each cache/s,
    },
    {
      what: 'an error of the language',
      files: flake('{ a = '),
      fails: /^source_invalid: flake\.nix has an error; .*syntax error/s,
    },
    {
      what: 'a name that the flake does not define',
      files: flake('undefinedName'),
      fails: /^source_invalid: flake\.nix has an error; .*undefined variable/s,
    },
    {
      what: 'a builder that fails',
      files: flake(derivation('hello', 'echo why >&2; exit 3')),
      fails: /^build_failed: .*exit code 3/s,
    },
    {
      what: 'an output that is a link',
      files: flake(derivation('hello', '/bin/sh -c "ln -s /nowhere $out"')),
      fails: /^no_artifacts: .*the output contains only links; copy their targets/,
    },
  ]
}
