// Verifies the result of an attested build: source, artifacts, VM, hardware and nonce. Pure.
//
// In this order: the hardware's evidence and the policy, REPORT_DATA, the nonce, the digest of the provenance, every
// artifact's digest, the source and the host's order against the request, then the VM's launch: its measurement, the
// command line, the disk. Our own results contain two receipts, made before any of the source ran and after all of it
// ended. Results of other builders of this service family contain one report, or a quote of a TPM that a report
// attests; the same rules apply as far as possible.

import { sha256 } from '../../attest/hash.ts'
import { parsed } from '../../attest/malformed.ts'
import { floorAgeCheck } from '../../attest/policy/floors.ts'
import { readEvidence } from '../../attest/provenance/evidence.ts'
import { RESULT_PATHS } from '../../attest/provenance/paths.ts'
import { SLSA_LEVELS } from '../../attest/provenance/slsa.ts'
import {
  buildTypeOf,
  type Provenance,
  readProvenance,
  slsaPredicateType,
  statementType,
} from '../../attest/provenance/statement.ts'
import type { ReceiptVerdict } from '../../attest/receipt/verify.ts'
import { type Check, check, fail, isBroken, pass, type Verdict, verdict } from '../../attest/verdict.ts'
import { TOOLCHAINS } from '../../contract/http/build-options.ts'
import type { BuildOrder } from '../../contract/vm/build-order.ts'
import { pinChecks, REPORT_PINS } from '../pins.ts'
import { bootChecks, type ExpectedLaunch, expectedLaunch, measurementCheckName } from './boot.ts'
import { documentChecks, filesCheck } from './documents.ts'
import { type JudgedReport, judgeReport } from './evidence.ts'
import { judgeOrder } from './order.ts'
import { type BuildQuestion, documentOf, type ReadResult, type ResultFiles } from './question.ts'
import { judgeReceipts, receiptChecks, receiptsMissing } from './receipts.ts'

type SlsaReached = {
  readonly build: string | null
  readonly buildEnvironment: string | null
  readonly missing: readonly string[]
}

export type BuildVerdict = Verdict & {
  /** True if a chain ends at a root that is not AMD's: no hardware attests the build. */
  readonly simulated: boolean
  /** Name of the first bad check in the order of the chain; null if all are good. */
  readonly firstBroken: string | null
  /** Whether the result has Strongroom's receipts. */
  readonly isOwn: boolean
  /** Null if unreadable. Trust it only in a good verdict. */
  readonly provenance: Provenance | null
  /** The host's order; null if unreadable, and for other builders. */
  readonly order: BuildOrder | null
  readonly dispatch: ReceiptVerdict<'build-dispatch'> | null
  readonly completion: ReceiptVerdict<'build'> | null
  /** The report of evidence.json; null if it has none. */
  readonly report: JudgedReport | null
  /** SLSA v1.2 levels that this verdict proves, and what is missing for higher ones. */
  readonly slsa: SlsaReached
}

/**
 * Verifies a result. Never throws for a bad result: an unreadable part is a failed check. Errors of the disk's source
 * propagate.
 */
export async function verifyBuild(files: ResultFiles, question: BuildQuestion): Promise<BuildVerdict> {
  const provenanceFile = files.documents.get(RESULT_PATHS.provenance)
  const provenance = parsed(() => readProvenance(documentOf(files, RESULT_PATHS.provenance)))
  const evidence = parsed(() => readEvidence(documentOf(files, RESULT_PATHS.evidence)))
  const read: ReadResult = {
    files,
    provenance: provenance.ok ? provenance.value : null,
    provenanceDigest: provenanceFile === undefined ? null : sha256(provenanceFile),
    evidence: evidence.ok ? evidence.value : null,
  }
  const launch = await expectedLaunch(question)
  const receipts = read.evidence?.receipts ?? null
  const judged = receipts === null ? null : await judgeReceipts(receipts, read, question)
  const report = await judgeReport(read, question, judged)
  const isOwn = judged !== null || isOwnType(read.provenance)
  const ordered = judgeOrder(read, question.request, judged, isOwn)
  const parts = [judged?.dispatch, judged?.completion, report].filter(part => part !== null && part !== undefined)
  const measurements = parts.flatMap(part => part.report?.measurement ?? [])
  const checks = [
    filesCheck(files, isOwn, read.provenance),
    provenance.ok ? typeCheck(provenance.value) : fail('provenance-format', provenance.reason),
    evidence.ok ? pass('evidence-format', evidence.value.platform) : fail('evidence-format', evidence.reason),
    ...pinChecks(REPORT_PINS, question.pins, {
      policy: question.policy,
      allowlist: 'any',
      source: launch.measurements === null || question.ownImage !== true ? undefined : launch.source,
    }),
    ...(question.pins.tcb === 'any' ? [] : [floorAgeCheck(question.asOf)]),
    ...measuredBelow(launch, [
      ...(judged === null ? receiptsMissing(isOwn) : receiptChecks(judged)),
      ...(report?.checks ?? []),
    ]),
    ...(await documentChecks(read, question, judged, isOwn)),
    ...ordered.checks,
    ...(await bootChecks(question, launch, measurements)),
  ]
  // The groups contain every check, but the verdict must not depend on the grouping.
  const ok = verdict(checks).ok && parts.every(part => part.ok)
  const simulated = parts.some(part => part.simulated)
  return {
    ok,
    checks,
    simulated,
    isOwn,
    provenance: read.provenance,
    firstBroken: checks.find(isBroken)?.name ?? (ok ? null : 'evidence'),
    order: ordered.order,
    dispatch: judged?.dispatch ?? null,
    completion: judged?.completion ?? null,
    report,
    slsa: reached({ ok, simulated, isOwn, isBootKnown: question.igvm !== 'any' || question.image !== 'any' }),
  }
}

function isOwnType(provenance: Provenance | null): boolean {
  const types = TOOLCHAINS.map(buildTypeOf)
  return provenance !== null && types.includes(provenance.predicate.buildDefinition.buildType)
}

/** Without measurements in the policy, the IGVM file or the image decides, if one is given. */
function measuredBelow({ measurements }: ExpectedLaunch, checks: readonly Check[]): Check[] {
  const isBelow = ({ name, outcome, required }: Check) =>
    measurements !== null && name.endsWith('/measurement') && outcome === 'not-checked' && !required
  return checks.map(check =>
    isBelow(check) ? { ...check, reason: `compared below, as ${measurementCheckName}` } : check,
  )
}

function typeCheck({ _type, predicateType }: Provenance): Check {
  const isSlsa = _type === statementType && predicateType === slsaPredicateType
  return check(
    'provenance-format',
    isSlsa,
    `it is a ${JSON.stringify(_type)} with a ${JSON.stringify(predicateType)}, not SLSA provenance v1`,
    'in-toto Statement v1, SLSA provenance v1, no other fields',
  )
}

/**
 * Returns the levels that this verdict proves. Each requires that everything it depends on was compared and matched.
 */
function reached({
  ok,
  simulated,
  isOwn,
  isBootKnown,
}: Readonly<Record<'ok' | 'simulated' | 'isOwn' | 'isBootKnown', boolean>>): SlsaReached {
  if (!ok) return { build: null, buildEnvironment: null, missing: ['the verdict is not good'] }
  if (simulated) return { build: null, buildEnvironment: null, missing: ['the platform is simulated: no hardware'] }
  if (!isOwn) return { build: null, buildEnvironment: null, missing: ['how this builder isolates builds is not known'] }
  if (isBootKnown) return SLSA_LEVELS
  const missing = ['build environment: the boot image was not compared; name --igvm or --image', ...SLSA_LEVELS.missing]
  return { build: SLSA_LEVELS.build, buildEnvironment: null, missing }
}
