// The request for a build, as options of `verify build` and `build submit`. Effects: reads the source and files.

import { InvalidArgumentError, Option } from 'commander'
import { sha256 } from '../../../attest/hash.ts'
import { toHex, utf8 } from '../../../base/bytes.ts'
import { plainDirectory, TOOLCHAINS, type Toolchain } from '../../../contract/http/build.ts'
import type { AskedRequest, AskedSource } from '../../../verifier/build/question.ts'
import { treeOf } from '../../build/source-tree.ts'
import type { Command } from '../../cli.ts'
import { InputFault } from '../../exit.ts'
import { KIB, readTextInput } from '../../input-file.ts'

/** Options of both commands. */
export type RequestOptions = {
  commit?: string
  anySource?: boolean
  ref?: string
  projectDir?: string
  toolchain?: Toolchain
  reproduce?: boolean
  fetchCa?: string
  cratesMirror?: string
}

/** Options of `verify build`. */
export type SourceOptions = RequestOptions & { source?: string; repository?: string }

export function addRequestOptions(command: Command): Command {
  return command
    .option('--commit <hex>', 'commit of the repository that has to be built, 40 digits', commitOption)
    .addOption(new Option('--any-source', 'accept any source; the verdict says which one was built'))
    .option('--ref <name>', 'branch, tag or commit of a git repository')
    .option('--project-dir <path>', 'directory within the source; its root unless given')
    .addOption(new Option('--toolchain <name>', 'detected unless given').choices([...TOOLCHAINS]))
    .option('--reproduce', 'the build is done twice, and each artifact compared')
    .option('--fetch-ca <file>', "PEM of the service's own authorities that fetches may trust; none unless given")
    .option('--crates-mirror <url>', "the service's own mirror that may replace the crates registry; none unless given")
}

function commitOption(text: string): string {
  if (isCommit(text)) return text.toLowerCase()
  throw new InvalidArgumentError('It must be a whole commit id, 40 hexadecimal digits.')
}

export function isCommit(text: string): boolean {
  return /^[0-9a-fA-F]{40}$/.test(text)
}

/** Everything but the source. Faults: invalid_request. */
export function askedFields(options: RequestOptions): Omit<AskedRequest, 'source' | 'sourceName'> {
  return {
    projectDir: options.projectDir === undefined ? null : plainDirectory(options.projectDir),
    toolchain: options.toolchain ?? null,
    reproduce: options.reproduce === true,
    fetchCaSha256: options.fetchCa === undefined ? null : authoritiesDigest(options.fetchCa),
    cratesMirror: options.cratesMirror ?? null,
  }
}

/** The file's exact bytes: the service's own is to be the same. */
function authoritiesDigest(path: string): string {
  const text = readTextInput({ path, param: 'fetch-ca', bytesMax: 64 * KIB })
  return toHex(sha256(utf8(text)))
}

/** The expected source. Fault invalid_request: not exactly one of --source, --commit, --any-source; or unreadable. */
export async function askedBuild(options: SourceOptions): Promise<AskedRequest> {
  const { source, commit, anySource, repository, ref } = options
  const fields = askedFields(options)
  const named = [source, commit, anySource].filter(item => item !== undefined)
  if (named.length !== 1) {
    const found = named.length === 0 ? 'none is' : `${named.length} are`
    throw new InputFault(
      `exactly one of --source, --commit and --any-source says what has to be built; ${found} there`,
      { param: 'source', remedy: 'name the directory or archive that was sent by --source, or the commit by --commit' },
    )
  }
  if (commit === undefined && (repository !== undefined || ref !== undefined)) {
    const param = repository === undefined ? 'ref' : 'repository'
    throw new InputFault(`--${param} goes with --commit`, { param, remedy: 'name the commit, or leave it out' })
  }
  return { ...fields, sourceName: 'any', source: await sourceOf() }

  async function sourceOf(): Promise<AskedSource | 'any'> {
    if (source !== undefined) return await treeOf(source, 'source', fields.projectDir)
    if (commit === undefined) return 'any'
    return { kind: 'commit', commit, url: repository ?? 'any', ref: ref ?? 'any' }
  }
}
