// Finds the configuration file and reads it. Effects: one read.

import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import { type Lines, lineOf, readToml } from '../linux/toml.ts'
import { type ConfigProblem, parseConfig, problemText } from './parse.ts'
import type { Config } from './schema.ts'

export const configFileDefault = '/etc/strongroom/strongroom.toml'

type Environment = { readonly [name: string]: string | undefined }

export type LoadedConfig = {
  readonly config: Config
  /** Null when there is no file, so that every field has its default. */
  readonly file: string | null
  /** Fields of an earlier release that the file still has. */
  readonly warnings: readonly ConfigProblem[]
}

/** A configuration that cannot be used, with all its mistakes. */
export class ConfigFault extends Fault {
  readonly problems: readonly ConfigProblem[]

  constructor(problems: readonly ConfigProblem[]) {
    const [first] = problems
    const field = problems.length === 1 && first !== undefined && first.field !== '' ? { param: first.field } : {}
    super('config.invalid', problems.map(problemText).join('\n'), field)
    this.problems = problems
  }
}

/**
 * Loads the file of `--config`, otherwise of STRONGROOM_CONFIG, otherwise the default file. Only the default file may
 * be absent. Fault: `config.invalid` (a ConfigFault if the mistake is in the text).
 */
export function loadConfig({ path, env }: { path: string | undefined; env: Environment }): LoadedConfig {
  const explicit = explicitFile({ path, env })
  const file = configFile({ path, env })
  try {
    return { ...checked(readText(file), file), file }
  } catch (error) {
    const isAbsent = error instanceof Fault && systemErrorCode(error.cause) === 'ENOENT'
    if (isAbsent && explicit === undefined) return { config: defaultConfig(), file: null, warnings: [] }
    throw error
  }
}

/** Returns the path that `loadConfig` reads, whether or not there is such a file. */
export function configFile(from: { path: string | undefined; env: Environment }): string {
  return resolve(explicitFile(from) ?? configFileDefault)
}

function explicitFile({ path, env }: { path: string | undefined; env: Environment }): string | undefined {
  return path ?? nonEmpty(env.STRONGROOM_CONFIG)
}

/** Problems in fields of a configuration loaded from `file`, each with the line of its field. Fault config.invalid. */
export function locate(
  file: string,
  problems: readonly { readonly field: string; readonly message: string }[],
): ConfigProblem[] {
  const toml = problems.length === 0 ? null : readToml(readText(file))
  const lines: Lines = toml?.ok === true ? toml.lines : new Map()
  return problems.map(({ field, message }) => ({ file, line: lineOf(lines, field.split('.')), field, message }))
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new Fault('config.invalid', `read configuration: ${messageOf(error)}`, { cause: error })
  }
}

/** The configuration of an empty file. */
export function defaultConfig(): Config {
  return checked('', configFileDefault).config
}

function checked(text: string, file: string): Pick<LoadedConfig, 'config' | 'warnings'> {
  const verdict = parseConfig(text, file)
  if (!verdict.ok) throw new ConfigFault(verdict.problems)
  return verdict
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text
}
