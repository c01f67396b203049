// The link of a vTPM in a TD on Azure: its TDX quote, judged as by `verify tdx`, and the HCL report that names the key.
// Effects: reads files; with --fetch the network, files of --cache.

import { isZero } from '../../../attest/encoding/layout.ts'
import { verifyTdxParavisorVtpm } from '../../../attest/tdx/paravisor.ts'
import type { TdxPolicy } from '../../../attest/tdx/policy.ts'
import type { TdxVerdict } from '../../../attest/tdx/verify.ts'
import type { VtpmQuote } from '../../../attest/tpm/vtpm.ts'
import { type Check, check, notChecked } from '../../../attest/verdict.ts'
import { checkTdxOptions, judgeTdx, measurementPin, readTdxPolicy, readTdxRoot, withWords } from '../../tdx/judge.ts'
import { readHclReport, readTdQuote } from './inputs.ts'
import type { VtpmOptions } from './kinds.ts'
import { type Link, type LinkInputs, readRuntimeKey } from './link.ts'

export async function linkTdx(
  options: VtpmOptions,
  asked: VtpmQuote,
  { run, asOf, bundle }: LinkInputs,
): Promise<Link> {
  const { report, runtimeData } = await readHclReport('azure-tdx', options, bundle)
  const quote = await readTdQuote(options, bundle)
  checkTdxOptions(options)
  const root = await readTdxRoot(options.trustSimulatedRoot)
  const policy = await readTdxPolicy(options.policy)
  const { attestationKey, checks } = await readRuntimeKey(options, runtimeData, bundle)
  const { judged, downloader } = await judgeTdx(run, quote, { ...options, policy, root, asOf })
  const pin = measurementPin(policy, options.anyMeasurement, judged.quote)
  const link = await verifyTdxParavisorVtpm({ ...asked, evidence: judged, tdReport: report, runtimeData })
  const hardware = {
    name: 'TDX quote' as const,
    checks: [...judged.checks.filter(isMade).map(withWords), pin],
    simulated: root.simulated === true,
    ...{ snp: null, tdx: judged, downloader },
  }
  return { link, attestationKey, checks: [rtmrCheck(policy, judged), ...checks], runtimeData, hardware }
}

const RTMRS = ['rtmr0', 'rtmr1', 'rtmr2', 'rtmr3'] as const

/**
 * Requires zeros in the RTMRs that the policy does not name. A paravisor leaves them at zero; the firmware of other
 * TDs, whose guests can put any REPORTDATA into a quote, extends them.
 */
function rtmrCheck(policy: TdxPolicy, { ok, quote }: TdxVerdict): Check {
  const name = 'vtpm-rtmrs'
  if (!ok || quote === null) return notChecked(name, 'vtpm-evidence is not good', true)
  const extended = RTMRS.filter(register => policy[register] === 'any' && !isZero(quote.report[register]))
  const found = `${extended.join(' and ')} ${extended.length > 1 ? 'are' : 'is'} not zero`
  const reason = `the TD may not be a paravisor's: ${found}; if your paravisor extends them, name them in the --policy`
  return check(name, extended.length === 0, reason, 'zero, as a paravisor leaves them, or named in the policy')
}

/** The caller gives no report data: vtpm-report-data compares them with what they must cover. */
function isMade({ name, outcome }: Check): boolean {
  return name !== 'report-data' || outcome !== 'not-checked'
}
