// strongroom show: prints the contents of files, unverified. Needs no daemon, network or root.

import type { Command } from '../../terminal/command.ts'
import { addShowQuote } from './quote.ts'
import { addShowReport } from './report.ts'

export function addShow(program: Command): void {
  const show = program
    .command('show')
    .description('print the fields of a file without a verdict: report, quote; offline, needs no daemon')
    .examples('strongroom show report report.bin')
  addShowReport(show)
  addShowQuote(show)
}
