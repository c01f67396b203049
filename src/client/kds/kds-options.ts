// AMD's key distribution service, as options of the commands that read a report. Pure.

import { kdsUrlDefault } from '../../attest/kds/service-url.ts'
import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { addFetchOptions, type FetchOptions, mirrorOption, requireFetch } from '../collateral/fetch-options.ts'

export type KdsOptions = FetchOptions & { printKdsUrls?: boolean; kdsUrl?: string; save?: string }

export function addKdsOptions(command: Command): Command {
  return addFetchOptions(command, "VCEK and CRL from AMD's key server unless an option names them")
    .option('--print-kds-urls', "print the addresses of the report's VCEK, chain and CRL, and end; uses no network")
    .option(
      '--kds-url <url>',
      `with --fetch or --print-kds-urls: a mirror of ${kdsUrlDefault}, as kds.base_url`,
      mirrorOption,
    )
    .option('--save <directory>', 'with --fetch: store the downloads for later use without a network')
}

/** Throws InputFault for options that exclude each other. */
export function checkKdsOptions(options: KdsOptions): void {
  const { fetch, printKdsUrls, kdsUrl, save, cache } = options
  const refuse = (param: string, message: string, remedy: string) => {
    throw new InputFault(message, { param, remedy })
  }
  if (fetch === true && printKdsUrls === true)
    refuse('print-kds-urls', '--print-kds-urls and --fetch exclude each other', 'leave one of the two out')
  requireFetch(options, { save, cache })
  if (save !== undefined && cache !== undefined)
    refuse('save', '--save and --cache exclude each other', 'leave --save out: --cache keeps the downloads, too')
  if (kdsUrl !== undefined && fetch !== true && printKdsUrls !== true)
    refuse('kds-url', '--kds-url goes with --fetch or --print-kds-urls', 'add one of them, or leave it out')
}
