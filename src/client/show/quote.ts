// strongroom show quote: prints every field of a TDX quote. Verifies nothing. Effects: reads the file.

import type { TdxQuote } from '../../attest/tdx/quote.ts'
import type { Command } from '../../terminal/command.ts'
import { dash, fields, type Paint } from '../../terminal/render.ts'
import { quoteDocument } from '../tdx/quote-document.ts'
import { readQuoteFile } from '../tdx/quote-file.ts'

export function addShowQuote(show: Command): void {
  show
    .command('quote')
    .description('print every field of a TDX quote; verifies nothing')
    .argument('<file>', 'quote, or hexadecimal, base64 or base64url of it; - for standard input')
    .examples('strongroom show quote quote.bin', 'strongroom show quote - --json < quote.bin')
    .runs(async (run, file: string) => {
      const { quote } = await readQuoteFile(file)
      await run.result({ verified: false, quote: quoteDocument(quote) }, shownQuoteText(quote, run.paint))
    })
}

export function shownQuoteText(quote: TdxQuote, paint: Paint): string {
  const shown = quoteDocument(quote)
  const { td_attributes: attributes } = shown
  const names = [...attributes.set, ...attributes.unknown.map(bit => `bit ${bit}`)].join(', ')
  const warning =
    'NOT VERIFIED: these are the bytes as they came; anybody could have written them (`strongroom verify tdx`)'
  const rows: (readonly [name: string, value: string])[] = [
    ['version', `${shown.version}, TD report ${shown.report_version}`],
    ['MRTD', shown.mr_td],
    ...shown.rtmrs.map((rtmr, at) => [`RTMR${at}`, rtmr] as const),
    ['report data', `${shown.report_data.slice(0, 64)}\n${shown.report_data.slice(64)}`],
    ['TD attributes', `${attributes.value}: ${names === '' ? 'no bit is set' : names}`],
    ['XFAM', shown.xfam],
    ['MRCONFIGID', shown.mr_config_id],
    ['MROWNER', shown.mr_owner],
    ['MROWNERCONFIG', shown.mr_owner_config],
    ['MRSERVICETD', dash(shown.mr_service_td)],
    ['TEE TCB SVN', shown.tee_tcb_svn],
    ['TEE TCB SVN 2', dash(shown.tee_tcb_svn2)],
    ['MRSEAM', shown.mr_seam],
    ['MRSIGNERSEAM', shown.mr_signer_seam],
    ['SEAM attributes', shown.seam_attributes],
    ['QE vendor', shown.qe_vendor_id],
    ['user data', shown.user_data],
    ['header reserved', shown.header_reserved],
    ['attestation key', shown.attestation_key],
    [
      'quoting enclave',
      `MRENCLAVE ${shown.qe.mr_enclave}\nMRSIGNER ${shown.qe.mr_signer}\nISVPRODID ${shown.qe.isv_prod_id}, ISVSVN ${shown.qe.isv_svn}`,
    ],
  ]
  return `${paint.bad(warning)}\n\n${fields(paint, rows)}`
}
