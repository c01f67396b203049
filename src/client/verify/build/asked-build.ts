// The request for a build, as options of `verify build` and `build submit`. Effects: reads the source and files.

import { InvalidArgumentError, Option } from 'commander'
import { sha256 } from '../../../attest/hash.ts'
import { toHex, utf8 } from '../../../base/bytes.ts'
import { plainDirectory } from '../../../contract/http/build.ts'
import {
  CargoOptions,
  GoOptions,
  type NixOptions,
  rustMirrorPattern,
  TOOLCHAINS,
  type Toolchain,
  type ToolchainOptions,
} from '../../../contract/http/build-options.ts'
import { clashText, OPTION_FIELDS, optionsOfFields } from '../../../contract/http/option-words.ts'
import type { Command } from '../../../terminal/command.ts'
import { InputFault } from '../../../terminal/exit.ts'
import { KIB, readTextInput } from '../../../terminal/input-file.ts'
import type { AskedRequest, AskedSource } from '../../../verifier/build/question.ts'
import { refuseInclude, treeOf } from '../../source/source-tree.ts'

/** Options of both commands. */
export type RequestOptions = {
  commit?: string
  anySource?: boolean
  ref?: string
  projectDir?: string
  toolchain?: Toolchain
  reproduce?: boolean
  package?: string
  bin?: string
  features?: string[]
  /** False with --no-default-features. */
  defaultFeatures?: boolean
  profile?: string
  target?: string
  rustMirror?: string
  flakeOutput?: string
  nixCache?: NixOptions['caches']
  goProxy?: string
  npmRegistry?: string
  pnpmRegistry?: string
  fetchCa?: string
  cratesMirror?: string
  include?: string[]
  allowLfsPointers?: boolean
  anyToolchain?: boolean
}

/** Options of `verify build`. */
export type SourceOptions = RequestOptions & { source?: string; repository?: string }

export function addRequestOptions(command: Command): Command {
  return command
    .option('--commit <hex>', 'expected commit of the repository, 40 digits', commitOption)
    .addOption(new Option('--any-source', 'accept any source; the verdict names the one that was built'))
    .addOption(
      new Option('--include <path>', 'also send this file or directory that .gitignore excludes; repeatable').argParser(
        (path: string, before: string[] = []) => [...before, path],
      ),
    )
    .option('--ref <name>', 'branch, tag or commit of a git repository')
    .option('--project-dir <path>', 'project directory within the source; default: its root')
    .addOption(new Option('--toolchain <name>', 'toolchain; detected by default').choices([...TOOLCHAINS]))
    .option('--package <name>', 'Cargo: package of the workspace; default: its default members', cargoOption('package'))
    .option('--bin <name>', 'Cargo: build only this program; default: every target', cargoOption('bin'))
    .option('--features <list>', 'Cargo: features, separated by commas; repeatable', featuresOption)
    .option('--no-default-features', 'Cargo: without the default features')
    .option('--profile <name>', 'Cargo: profile; default: release', cargoOption('profile'))
    .option('--target <triple>', "Cargo: target; default: the builder's own", cargoOption('target'))
    .option(
      '--rust-mirror <url>',
      "Cargo: the service's own mirror of Rust, for the version that rust-toolchain.toml pins; default: none",
      rustMirrorOption,
    )
    .option('--flake-output <path>', 'Nix: output of the flake; default: packages.x86_64-linux.default')
    .option('--go-proxy <url>', 'Go: module proxy; default: none', addressOption)
    .option('--npm-registry <url>', 'npm: registry; default: none', addressOption)
    .option('--pnpm-registry <url>', 'pnpm: registry; default: none', addressOption)
    .option('--nix-cache <url=key>', 'Nix: binary cache and its public key, NAME:BASE64; repeatable', cacheOption)
    .option('--reproduce', 'build twice, and compare each artifact')
    .option('--fetch-ca <file>', "PEM of the service's own authorities that fetches may trust; default: none")
    .option('--crates-mirror <url>', "the service's own mirror that may replace the crates registry; default: none")
    .option('--allow-lfs-pointers', 'accept a source with Git LFS pointers, whose content was not built')
    .option('--any-toolchain', 'accept a compiler other than the one that rust-toolchain.toml or go.mod pins')
}

function commitOption(text: string): string {
  if (isCommit(text)) return text.toLowerCase()
  throw new InvalidArgumentError('It must be a whole commit id, 40 hexadecimal digits.')
}

export function isCommit(text: string): boolean {
  return /^[0-9a-fA-F]{40}$/.test(text)
}

/** Returns everything except the source. Fault invalid_request. */
export function askedFields(options: RequestOptions): Omit<AskedRequest, 'source' | 'sourceName'> {
  return {
    projectDir: options.projectDir === undefined ? null : plainDirectory(options.projectDir),
    toolchain: options.toolchain ?? null,
    reproduce: options.reproduce === true,
    options: optionsOf(options),
    fetchCaSha256: options.fetchCa === undefined ? null : authoritiesDigest(options.fetchCa),
    cratesMirror: options.cratesMirror ?? null,
    compiler: options.anyToolchain === true ? 'any' : 'pinned',
    lfsPointers: options.allowLfsPointers === true ? 'any' : 'none',
  }
}

/** Returns the toolchain's options. Throws Fault invalid_request for options of two toolchains. */
function optionsOf(options: RequestOptions): ToolchainOptions | null {
  const { package: pkg, bin, features, defaultFeatures, profile, target, rustMirror } = options
  const { flakeOutput, nixCache = [], goProxy, npmRegistry, pnpmRegistry } = options
  const found = optionsOfFields(
    {
      ...(pkg === undefined ? {} : { package: pkg }),
      ...(bin === undefined ? {} : { bin }),
      ...(features === undefined ? {} : { features }),
      ...(profile === undefined ? {} : { profile }),
      ...(target === undefined ? {} : { target }),
      ...(rustMirror === undefined ? {} : { rust_mirror: rustMirror }),
      ...(flakeOutput === undefined ? {} : { output: flakeOutput }),
      ...(goProxy === undefined ? {} : { go_proxy: goProxy }),
      ...(npmRegistry === undefined ? {} : { npm_registry: npmRegistry }),
      ...(pnpmRegistry === undefined ? {} : { pnpm_registry: pnpmRegistry }),
      no_default_features: defaultFeatures === false,
      nix_caches: nixCache.map(({ url, publicKey }) => ({ url, public_key: publicKey })),
    },
    options.toolchain ?? null,
  )
  if ('options' in found) return found.options
  const { field, other } = found.clash
  const { option } = OPTION_FIELDS[field]
  throw new InputFault(`--${option} ${clashText(found.clash)}`, {
    param: option,
    remedy: `leave out --${option}, or --${other === 'toolchain' ? other : OPTION_FIELDS[other].option}`,
  })
}

function cargoOption(field: 'package' | 'bin' | 'profile' | 'target'): (text: string) => string {
  return text => {
    const [form] = CargoOptions.properties[field].anyOf
    if (!new RegExp(form.pattern ?? '').test(text)) throw new InvalidArgumentError('It is not a name that cargo takes.')
    return text
  }
}

function rustMirrorOption(text: string): string {
  if (!new RegExp(rustMirrorPattern).test(text))
    throw new InvalidArgumentError('It must be https://HOST/PATH, without a slash at its end.')
  return text
}

/** Parses the address of a proxy or a registry. */
function addressOption(text: string): string {
  if (!new RegExp(GoOptions.properties.proxy.pattern ?? '').test(text))
    throw new InvalidArgumentError('It must be https://HOST/PATH, without a query.')
  return text
}

/** Parses features separated by commas, as cargo does. */
function featuresOption(text: string, before: string[] = []): string[] {
  const names = text.split(',').filter(name => name !== '')
  const { items } = CargoOptions.properties.features
  const wrong = names.find(name => !new RegExp(items.pattern ?? '').test(name))
  if (names.length === 0 || wrong !== undefined)
    throw new InvalidArgumentError('It must be names of features, with commas between them.')
  return [...new Set([...before, ...names])]
}

function cacheOption(text: string, before: NixOptions['caches'] = []): NixOptions['caches'] {
  const [, url, publicKey] = /^(https:\/\/[^=]+)=([^:]+:[^:]+)$/.exec(text) ?? []
  if (url === undefined || publicKey === undefined)
    throw new InvalidArgumentError('It must be https://HOST/PATH=NAME:BASE64, with the key that signs the paths.')
  return [...before, { url, publicKey }]
}

/** Returns the digest of the file's exact bytes, which must equal the service's own file. */
function authoritiesDigest(path: string): string {
  const text = readTextInput({ path, param: 'fetch-ca', bytesMax: 64 * KIB })
  return toHex(sha256(utf8(text)))
}

/**
 * Returns the expected request; `onLeftOut` receives remarks on ignored files of the source. Throws Fault
 * invalid_request unless exactly one of --source, --commit and --any-source is given and readable.
 */
export async function askedBuild(
  options: SourceOptions,
  onLeftOut: (remarks: readonly string[]) => Promise<void>,
): Promise<AskedRequest> {
  const { source, commit, anySource, repository, ref } = options
  const fields = askedFields(options)
  const named = [source, commit, anySource].filter(item => item !== undefined)
  if (named.length !== 1) {
    const found = named.length === 0 ? 'none is' : `${named.length} are`
    throw new InputFault(`exactly one of --source, --commit and --any-source is required; ${found} given`, {
      param: 'source',
      remedy: 'name the directory or archive that was sent by --source, or the commit by --commit',
    })
  }
  if (commit === undefined && (repository !== undefined || ref !== undefined)) {
    const param = repository === undefined ? 'ref' : 'repository'
    throw new InputFault(`--${param} goes with --commit`, { param, remedy: 'name the commit, or leave it out' })
  }
  return { ...fields, sourceName: 'any', source: await sourceOf() }

  async function sourceOf(): Promise<AskedSource | 'any'> {
    const { include = [] } = options
    if (source !== undefined) {
      const { tree, leftOut } = await treeOf(source, 'source', { projectDir: fields.projectDir, include })
      if (leftOut.length > 0) await onLeftOut(leftOut)
      return tree
    }
    refuseInclude(include)
    if (commit === undefined) return 'any'
    return { kind: 'commit', commit, url: repository ?? 'any', ref: ref ?? 'any' }
  }
}
