// Rows: flakes that try to falsify the list of what was fetched. Pure.

import { flakeInputHash, gitHost } from '../fetch-servers.ts'
import { fixed } from './forms.ts'
import { derivation, emptyLock, flake, hello, lockOf, type Row } from './parts.ts'

const tarball = { type: 'tarball', url: `https://${gitHost}/input.tar.gz`, narHash: flakeInputHash() }
const ghost = { flake: false, locked: { ...tarball, url: 'https://innocent.example/audited.tar.gz' } }

export const HOSTILE: readonly Row[] = [
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
