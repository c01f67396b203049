// The command that verifies a build's result. Its expected request is this tab's own, or the service's record. Pure.

import type { BuildRecord } from '../../../../contract/http/build-api.ts'
import type { ToolchainOptions } from '../../../../contract/http/build-options.ts'
import { optionsOfFields, optionWords } from '../../../../contract/http/option-words.ts'
import { type CommandOptions, commandOf } from '../../core/command.ts'
import type { KnownBuild } from './known-build.ts'

/** Returns the command. `file`: the saved result. */
export function verifyBuildCommand(file: string, known: KnownBuild | null, record: BuildRecord): string {
  const { nonce, source, projectDir, toolchain, options, reproduce } = known ?? recordedRequest(record)
  return commandOf(['verify', 'build', file], {
    nonce,
    ...sourceOptions(source),
    'project-dir': projectDir,
    toolchain,
    ...commandOptions(options),
    reproduce,
    policy: 'build-policy.json',
  })
}

/** Explains where the command's expectations come from, and where to run it. */
export function requestNote(known: KnownBuild | null, record: BuildRecord): string {
  const from =
    known === null
      ? 'This tab did not submit the build, so the command has the nonce and the source of this host’s record.'
      : 'The command has the nonce and the source that this tab sent.'
  return `${from} Compare both with yours. ${placeNote((known ?? recordedRequest(record)).source)}`.trim()
}

function placeNote(source: Request['source']): string {
  if (source.kind === 'archive') return 'Run it in the directory of the archive that you sent.'
  return commitIn(source) === null ? 'Run it in a checkout of the commit that you expect.' : ''
}

type Request = Omit<KnownBuild, 'id' | 'atMs'>

/** Returns the options of one toolchain as options of `build submit` and `verify build`. */
export function commandOptions(options: ToolchainOptions | null): CommandOptions {
  const named = optionWords(options).map(({ option, words }) => {
    const texts = words.filter(word => word !== true)
    return [option, texts.length === 0 ? true : texts] as const
  })
  return Object.fromEntries(named)
}

export function recordedOptions({ options, toolchain }: BuildRecord): ToolchainOptions | null {
  const found = optionsOfFields(options, toolchain)
  return 'options' in found ? found.options : null
}

function recordedRequest(record: BuildRecord): Request {
  const { nonce, source, project_dir, toolchain, reproduce } = record
  return {
    ...{ nonce, toolchain, options: recordedOptions(record), reproduce, projectDir: project_dir },
    source: source.kind === 'git' ? source : { kind: 'archive', name: source.name ?? 'archive' },
  }
}

/** Returns the commit that a request names; null for branches, tags and archives. */
function commitIn(source: Request['source']): string | null {
  return source.kind === 'git' && /^[0-9a-f]{40}$/i.test(source.ref ?? '') ? source.ref : null
}

/**
 * Returns the source options. A branch or a tag is no expectation, because the host resolves it: the command hashes a
 * checkout instead.
 */
function sourceOptions(source: Request['source']): CommandOptions {
  if (source.kind === 'archive') return { source: source.name }
  const commit = commitIn(source)
  if (commit === null) return { source: '.', ref: source.ref }
  return { commit: commit.toLowerCase(), repository: source.url, ref: source.ref }
}
