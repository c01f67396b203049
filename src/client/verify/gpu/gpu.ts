// strongroom verify gpu: verifies saved evidence of NVIDIA GPUs, offline. Effects: reads files.

import type { GpuVerdict, JudgedGpu } from '../../../attest/nvidia/judge.ts'
import { nonceBytes } from '../../../attest/nvidia/spdm.ts'
import { verifyGpus } from '../../../attest/nvidia/verify.ts'
import { verdict } from '../../../attest/verdict.ts'
import { iso, systemClock } from '../../../base/clock.ts'
import type { Command, Run } from '../../../terminal/command.ts'
import { hexOption, timeOption } from '../../../terminal/options.ts'
import { verdictDocument } from '../../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../../terminal/verdict-exit.ts'
import { verboseHelp } from '../../trust/trust-options.ts'
import { verdictSummary } from '../../verdict/summary.ts'
import {
  type GpuOptions,
  readEvidenceFile,
  readGpuPolicy,
  readGpuRoots,
  readOcspFiles,
  readRimFiles,
} from './inputs.ts'

export function addVerifyGpu(verify: Command): void {
  verify
    .command('gpu')
    .description(
      "verify reports of NVIDIA GPUs (Hopper, Blackwell): certificates to NVIDIA's root, nonce, measurements against NVIDIA's manifests, revocation",
    )
    .argument(
      '<evidence>',
      'JSON of nvtrust or `nvattest collect-evidence`, for one GPU or several; - is standard input',
    )
    .requiredOption('--nonce <hex>', 'the 32 bytes that you chose for the reports', hexOption(nonceBytes))
    .option(
      '--rim <file>',
      'manifest of the driver or of the VBIOS, XML or JSON of the RIM service; repeatable',
      collected,
    )
    .option('--ocsp <file>', 'OCSP response, DER, for certificates of GPUs and manifests; repeatable', collected)
    .option('--policy <file>', 'JSON as in `verify gpu-policy-schema`')
    .option('--as-of <time>', 'verify for this time in UTC, like 2025-06-01T00:00:00Z; default now', timeOption)
    .option(
      '--trust-simulated-root <file>',
      'PEM of two simulated roots, of GPUs and of manifests; the verdict is then marked SIMULATED',
    )
    .option(
      '--any-gpu',
      'accept any genuine GPU, driver and VBIOS; without this the --policy must name the expected ones',
    )
    .option('--any-ocsp', 'accept certificates without a fresh OCSP response; a revoked one still fails')
    .option('--any-devtools', 'accept a GPU that may be in DevTools mode: no report shows that it is not')
    .option('--verbose', verboseHelp)
    .examples(
      'strongroom verify gpu evidence.json --nonce $(cat nonce.hex) --rim driver.xml --rim vbios.xml --ocsp device.der --ocsp ica.der --ocsp identity.der --policy gpu-policy.json',
      'strongroom verify gpu evidence.json --nonce $(cat nonce.hex) --rim driver.xml --rim vbios.xml --any-gpu --any-ocsp --any-devtools',
    )
    .runs(verifyGpu)
}

/** Collects the values of an option that may be repeated. */
export function collected(path: string, before: readonly string[] = []): readonly string[] {
  return [...before, path]
}

async function verifyGpu(run: Run, path: string, options: GpuOptions): Promise<void> {
  const asOfMs = options.asOf ?? systemClock.nowMs()
  // Loaded here, because no other command needs these two libraries.
  const { readSignedXml } = await import('./signed-xml.ts')
  const { policy, checks } = await readGpuPolicy(options)
  const judged = verifyGpus({
    evidence: await readEvidenceFile(path),
    nonce: options.nonce,
    rims: await readRimFiles({ paths: options.rim, param: 'rim' }),
    readSignedXml,
    ocsp: readOcspFiles({ paths: options.ocsp, param: 'ocsp' }),
    roots: await readGpuRoots(options.trustSimulatedRoot, 'trust-simulated-root'),
    policy,
    asOfMs,
    // Saved evidence has no statement by a measured guest.
    devtools: null,
  })
  const shown = { ...verdict([...judged.checks, ...checks]), simulated: judged.simulated }
  await run.result(
    { ...verdictDocument(shown), as_of: iso(asOfMs), gpus: judged.gpus.map(gpuDocument), rims: rimDocuments(judged) },
    verdictSummary(shown, { verbose: options.verbose === true, paint: run.paint }),
  )
  run.exitWith(exitCodeOfVerdict(shown))
}

/** Returns the document of a GPU, to be trusted only in a good verdict. Null if the GPU could not be judged. */
export function gpuDocument({ facts, hwmodel, board, uncompared }: JudgedGpu) {
  if (facts === null) return null
  return {
    architecture: facts.architecture,
    hwmodel,
    driver_version: facts.driverVersion,
    vbios_version: facts.vbiosVersion,
    mode: facts.mode,
    ueid: facts.ueid,
    device_serial: facts.deviceSerial,
    board,
    uncompared,
  }
}

function rimDocuments({ rims }: GpuVerdict) {
  return rims.map(rim => (rim === null ? null : { kind: rim.kind, version: rim.version, product: rim.product }))
}
