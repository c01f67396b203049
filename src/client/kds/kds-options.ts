// AMD's key distribution service, as options of the commands that read a report. Pure.

import { InvalidArgumentError } from 'commander'
import { kdsUrlDefault, kdsUrlLengthMax, kdsUrlPattern } from '../../attest/kds/service-url.ts'
import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'

export type KdsOptions = { fetch?: boolean; printKdsUrls?: boolean; kdsUrl?: string; save?: string }

export function addKdsOptions(command: Command): Command {
  return command
    .option(
      '--fetch',
      "download VCEK, chain and CRL from AMD's key server unless an option names them; they are verified like files",
    )
    .option('--print-kds-urls', "print the addresses of the report's VCEK, chain and CRL, and end; uses no network")
    .option(
      '--kds-url <url>',
      `with --fetch or --print-kds-urls: a mirror of ${kdsUrlDefault}, as kds.base_url`,
      kdsUrlOption,
    )
    .option('--save <directory>', 'with --fetch: store the downloads for later use without a network')
}

function kdsUrlOption(text: string): string {
  if (text !== '' && text.length <= kdsUrlLengthMax && new RegExp(kdsUrlPattern).test(text)) return text
  throw new InvalidArgumentError('It must be an http or https URL without credentials.')
}

/** Throws InputFault for options that exclude each other. */
export function checkKdsOptions({ fetch, printKdsUrls, kdsUrl, save }: KdsOptions): void {
  const refuse = (param: string, message: string, remedy: string) => {
    throw new InputFault(message, { param, remedy })
  }
  if (fetch === true && printKdsUrls === true)
    refuse('print-kds-urls', '--print-kds-urls and --fetch exclude each other', 'leave one of the two out')
  if (save !== undefined && fetch !== true) refuse('save', '--save goes with --fetch', 'add --fetch, or leave it out')
  if (kdsUrl !== undefined && fetch !== true && printKdsUrls !== true)
    refuse('kds-url', '--kds-url goes with --fetch or --print-kds-urls', 'add one of them, or leave it out')
}
