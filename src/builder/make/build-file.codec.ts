// strongroom.build.toml: command and outputs of a project without locked dependencies. Pure.

import { parse } from 'smol-toml'
import { isComponent } from '../../attest/provenance/paths.ts'
import { BuildFailure } from '../failure.ts'

export const buildFileName = 'strongroom.build.toml'

export type BuildFile = {
  /** The program and its arguments, not interpreted by a shell. */
  readonly command: readonly string[]
  /** Files and directories that the command produces, relative to the project. */
  readonly outputs: readonly string[]
  readonly name: string | null
  readonly version: string | null
}

const wordsMax = 64
const outputsMax = 256
const charsMax = 4096
const members = ['command', 'outputs', 'name', 'version']

/** Parses the file. Failure `source_invalid`, which names the field. */
export function readBuildFile(text: string): BuildFile {
  let read: Record<string, unknown>
  try {
    read = parse(text)
  } catch (cause) {
    throw new BuildFailure('source_invalid', `${buildFileName}: not TOML; see \`strongroom help builds\``, { cause })
  }
  const unknown = Object.keys(read).find(name => !members.includes(name))
  if (unknown !== undefined)
    throw wrong(JSON.stringify(unknown.slice(0, 100)), `no field; the fields are ${members.join(', ')}`)
  const command = textsOf(read.command, wordsMax)
  if (command === null) throw wrong('command', 'must be a list of words, such as ["make", "all"]')
  const outputs = textsOf(read.outputs, outputsMax)
  if (outputs === null) throw wrong('outputs', 'must be a list of files or directories, such as ["bin/tool"]')
  const bad = outputs.find(path => !path.split('/').every(isComponent))
  if (bad !== undefined)
    throw wrong('outputs', `${JSON.stringify(bad.slice(0, 200))} must be a plain path below the project`)
  return { command, outputs, name: parsePlainName(read.name, 'name'), version: parsePlainName(read.version, 'version') }
}

/** Returns a list of at least one text; null for any other value. */
function textsOf(value: unknown, countMax: number): readonly string[] | null {
  if (!Array.isArray(value) || value.length === 0 || value.length > countMax) return null
  const isText = (word: unknown) =>
    typeof word === 'string' && word !== '' && word.length <= charsMax && !word.includes('\0')
  return value.every(isText) ? value : null
}

function parsePlainName(value: unknown, field: string): string | null {
  if (value === undefined) return null
  if (typeof value !== 'string' || !isComponent(value)) throw wrong(field, 'must be a plain name')
  return value
}

function wrong(field: string, problem: string): BuildFailure {
  return new BuildFailure('source_invalid', `${buildFileName}: ${field}: ${problem}`)
}
