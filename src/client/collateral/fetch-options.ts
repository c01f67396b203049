// Options of commands that download collateral with --fetch. Pure.

import { InvalidArgumentError } from 'commander'
import { kdsUrlLengthMax, kdsUrlPattern } from '../../attest/kds/service-url.ts'
import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'

export type FetchOptions = { fetch?: boolean; cache?: string }

/** Adds --fetch and --cache. `what`: what is downloaded, and from where. */
export function addFetchOptions(command: Command, what: string): Command {
  return command
    .option('--fetch', `download ${what}; downloads are verified like files`)
    .option(
      '--cache <directory>',
      'with --fetch: keep the downloads here and find them again; what a server renews is downloaded again after a day',
    )
}

/** The base URL of a mirror. */
export function mirrorOption(text: string): string {
  if (text !== '' && text.length <= kdsUrlLengthMax && new RegExp(kdsUrlPattern).test(text)) return text
  throw new InvalidArgumentError('It must be an http or https URL without credentials.')
}

/** Throws InputFault if one of these options is given without --fetch. */
export function requireFetch({ fetch }: FetchOptions, given: Readonly<Record<string, string | undefined>>): void {
  for (const [param, value] of Object.entries(given)) {
    if (value === undefined || fetch === true) continue
    const remedy = 'add --fetch, or leave it out'
    throw new InputFault(`--${param} goes with --fetch`, { param, remedy })
  }
}

/** Returns a URL below a base URL, which may end with a slash. */
export function below(baseUrl: string, path: string): string {
  return `${baseUrl.replace(/\/+$/, '')}${path}`
}
