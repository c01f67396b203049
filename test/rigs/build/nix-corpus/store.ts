// Reads the store that a build leaves, with Nix itself and outside of the builder. Effects: runs Nix in a sandbox.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type SourceFiles, writeTree } from '../../../../scripts/rigs/build/sources.ts'
import { succeed } from '../../../../scripts/rigs/guest/root.ts'

type PathInfo = {
  readonly path: string
  readonly narHash: string
  readonly ca?: string | null
  readonly signatures?: readonly string[]
}

/**
 * Everything in the store that the source did not bring and no derivation built: `fixed NAME HASH` for a fixed output,
 * `path NAME HASH` for a path that a cache signed, `input HASH` for a flake's input. Hashes in hexadecimal.
 */
export function foreignPaths(builtDir: string, own: SourceFiles): string[] {
  const root = fs.mkdtempSync(join(tmpdir(), 'strongroom-nix-store-'))
  const [nixDir, sourceDir] = [join(root, 'nix'), join(root, 'own')]
  try {
    // The store of a build belongs to its user.
    succeed(['cp', '--recursive', '--no-dereference', '--preserve=mode,timestamps,links', builtDir, nixDir])
    fs.mkdirSync(sourceDir)
    writeTree(sourceDir, own)
    const nix = (...argv: readonly string[]) => runNix(nixDir, sourceDir, argv)
    const answer: PathInfo[] | Record<string, Omit<PathInfo, 'path'>> = JSON.parse(
      nix('nix', 'path-info', '--all', '--json'),
    )
    // Since 2.19 an object by path.
    const infos = Array.isArray(answer) ? answer : Object.entries(answer).map(([path, info]) => ({ ...info, path }))
    const isDerivation = ({ path }: PathInfo) => path.endsWith('.drv')
    const derivations = infos.filter(isDerivation).map(({ path }) => path)
    const outputs = new Set(
      derivations.length === 0 ? [] : nix('nix-store', '--query', '--outputs', ...derivations).split('\n'),
    )
    const ownHash = nix('nix-hash', '--type', 'sha256', '/own').trim()
    return infos
      .filter(info => !isDerivation(info))
      .flatMap(info => foreignPath(info, { nixDir, isOutput: outputs.has(info.path), ownHash }))
      .sort()
  } finally {
    succeed(['chmod', '--recursive', 'u+w', root])
    fs.rmSync(root, { recursive: true })
  }
}

type Context = { readonly nixDir: string; readonly isOutput: boolean; readonly ownHash: string }

function foreignPath(
  { path, narHash, ca, signatures = [] }: PathInfo,
  { nixDir, isOutput, ownHash }: Context,
): string[] {
  const name = path.slice('/nix/store/'.length + 33)
  const nar = Buffer.from(narHash.replace('sha256-', ''), 'base64').toString('hex')
  if (isOutput && ca?.startsWith('fixed:r:') === true) return [`fixed ${name} ${nar}`]
  if (isOutput && ca?.startsWith('fixed:') === true) {
    const bytes = fs.readFileSync(join(nixDir, path.slice('/nix/'.length)))
    return [`fixed ${name} ${createHash('sha256').update(bytes).digest('hex')}`]
  }
  if (signatures.length > 0) return [`path ${name} ${nar}`]
  // Nix also keeps the archive that an input came in. Its file is no input.
  const isInput = !isOutput && name === 'source' && nar !== ownHash
  return isInput && fs.statSync(join(nixDir, path.slice('/nix/'.length))).isDirectory() ? [`input ${nar}`] : []
}

function runNix(nixDir: string, sourceDir: string, argv: readonly string[]): string {
  const [program = '', ...rest] = argv
  return succeed([
    ...['bwrap', '--unshare-user', '--unshare-pid', '--unshare-net', '--ro-bind', '/usr', '/usr', '--tmpfs', '/tmp'],
    ...['bin', 'lib', 'lib64'].flatMap(link => ['--symlink', `usr/${link}`, `/${link}`]),
    ...[
      '--ro-bind',
      '/etc',
      '/etc',
      '--proc',
      '/proc',
      '--dev',
      '/dev',
      '--bind',
      nixDir,
      '/nix',
      '--ro-bind',
      sourceDir,
      '/own',
    ],
    ...['--clearenv', '--setenv', 'PATH', '/usr/bin', '--setenv', 'HOME', '/tmp', '--setenv', 'NIX_REMOTE', 'local'],
    ...['--', program, '--option', 'build-users-group', ''],
    ...['--option', 'extra-experimental-features', 'nix-command', ...rest],
  ])
}
