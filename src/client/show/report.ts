// strongroom show report: prints every field of an SNP report. Verifies nothing. Effects: reads the file.

import { Option } from 'commander'
import { PRODUCTS, type Product } from '../../attest/amd/product.ts'
import { kdsUrlDefault } from '../../attest/kds/service-url.ts'
import { parsed } from '../../attest/malformed.ts'
import { findReport } from '../../attest/report/form.ts'
import { identifyReport } from '../../attest/report/identify.ts'
import { decodeReport, type SnpReport } from '../../attest/report/report.ts'
import type { Command } from '../../terminal/command.ts'
import { readInput, readingInput } from '../../terminal/input-file.ts'
import { evidenceBytesMax } from '../evidence/evidence.ts'
import { readEvidence } from '../evidence/read.ts'
import { type KdsUrls, kdsUrls } from '../kds/kds-urls.ts'
import { reportDocument } from '../verdict/report-document.ts'
import { type ShownReport, shownReportText } from './report-text.ts'

export function addShowReport(show: Command): void {
  show
    .command('report')
    .description('print every field of an SNP report, and where its VCEK is served; verifies nothing')
    .argument('<file>', 'report in any form that `verify report` takes; - for standard input')
    .addOption(
      new Option('--product <name>', 'product of a report of version 2, which does not name it').choices(PRODUCTS),
    )
    .examples('strongroom show report report.bin', 'strongroom show report - --json < report.bin')
    .runs(async (run, file: string, { product: named }: { product?: Product }) => {
      const bytes = readInput({ path: file, param: 'file', bytesMax: evidenceBytesMax })
      const shown = await readingInput(file, () => shownReport(bytes, named ?? null))
      await run.result(shownDocument(shown), shownReportText(shown, run.paint))
    })
}

/** Reads a report. Throws Malformed. Without a known product, TCBs stay numbers, and there are no addresses. */
async function shownReport(bytes: Uint8Array, named: Product | null): Promise<ShownReport> {
  const evidence = await readEvidence(bytes)
  const found = findReport(evidence.report)
  const report = decodeReport(found.report)
  const identity = identifyReport(report, named)
  const product = identity.kind === 'known' ? identity.product : null
  return { form: found.form, container: evidence.container, report, product, kds: kdsOf(report, named) }
}

function kdsOf(report: SnpReport, named: Product | null): KdsUrls | { readonly reason: string } {
  const urls = parsed(() => kdsUrls(report, named, kdsUrlDefault))
  return urls.ok ? urls.value : { reason: urls.reason }
}

/** Returns the document. `verified` is always false, as in the first line of the text for people. */
function shownDocument({ form, container, report, product, kds }: ShownReport) {
  return {
    verified: false,
    form,
    container,
    product,
    kds: { vcek: null, chain: null, crl: null, ...kds },
    report: reportDocument(report, product),
  }
}
