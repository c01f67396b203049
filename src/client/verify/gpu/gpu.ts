// strongroom verify gpu: verifies saved evidence of NVIDIA GPUs and switches. Effects: reads files; with
// --fetch the network, files of --cache.

import type { JudgedSwitch } from '../../../attest/nvidia/hgx/switch.ts'
import type { GpuVerdict, JudgedGpu } from '../../../attest/nvidia/judge.ts'
import { nonceBytes } from '../../../attest/nvidia/spdm.ts'
import { verifyGpus } from '../../../attest/nvidia/verify.ts'
import { verdict } from '../../../attest/verdict.ts'
import { iso, systemClock } from '../../../base/clock.ts'
import type { Command, Run } from '../../../terminal/command.ts'
import { hexOption, timeOption } from '../../../terminal/options.ts'
import { verdictDocument } from '../../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../../terminal/verdict-exit.ts'
import { requireDirectory } from '../../collateral/cache.ts'
import { Downloader } from '../../collateral/download.ts'
import { addFetchOptions, mirrorOption, requireFetch } from '../../collateral/fetch-options.ts'
import { verboseHelp } from '../../trust/trust-options.ts'
import { verdictSummary } from '../../verdict/summary.ts'
import { fetchOcsp, fetchRims, ocspUrlDefault, rimUrlDefault } from './fetch.ts'
import { type GpuOptions, readEvidence, readGpuPolicy, readGpuRoots, readOcspFiles, readRimFiles } from './inputs.ts'

export function addVerifyGpu(verify: Command): void {
  const command = verify
    .command('gpu')
    .description(
      "verify reports of NVIDIA GPUs (Hopper, Blackwell) and NVSwitches (LS10): certificates to NVIDIA's root, nonce, measurements against NVIDIA's manifests, revocation, topology",
    )
    .argument(
      '<evidence>',
      'JSON of nvtrust or `nvattest collect-evidence`, for one GPU or several; - is standard input',
    )
    .option(
      '--switches <file>',
      'JSON of `nvattest collect-evidence --device switch`: the NVSwitches of the same machine, for the same nonce',
    )
    .requiredOption('--nonce <hex>', 'the 32 bytes that you chose for the reports', hexOption(nonceBytes))
    .option(
      '--rim <file>',
      'manifest of the driver, the VBIOS or the BIOS of switches, XML or JSON of the RIM service; repeatable',
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
      'accept any genuine GPU or switch, driver, VBIOS and BIOS; without this the --policy must name the expected ones',
    )
    .option('--any-ocsp', 'accept certificates without a fresh OCSP response; a revoked one still fails')
    .option('--any-devtools', 'accept a GPU that may be in DevTools mode: no report shows that it is not')
    .option('--rim-url <url>', `with --fetch: a mirror of ${rimUrlDefault}`, mirrorOption)
    .option('--ocsp-url <url>', `with --fetch: another responder than ${ocspUrlDefault}`, mirrorOption)
    .option('--verbose', verboseHelp)
  addFetchOptions(command, "manifests and OCSP responses from NVIDIA's services, unless --rim or --ocsp names any")
    .examples(
      'strongroom verify gpu evidence.json --nonce $(cat nonce.hex) --fetch --cache collateral --policy gpu-policy.json',
      'strongroom verify gpu evidence.json --nonce $(cat nonce.hex) --rim driver.xml --rim vbios.xml --ocsp device.der --ocsp ica.der --ocsp identity.der --policy gpu-policy.json',
      'strongroom verify gpu gpus.json --switches switches.json --nonce $(cat nonce.hex) --fetch --policy hgx-policy.json',
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
  const { cache, rimUrl = rimUrlDefault, ocspUrl = ocspUrlDefault } = options
  requireFetch(options, { cache, 'rim-url': options.rimUrl, 'ocsp-url': options.ocspUrl })
  requireDirectory({ cache })
  const evidence = await readEvidence(path, options)
  const roots = await readGpuRoots(options.trustSimulatedRoot, 'trust-simulated-root')
  const given = {
    rims: await readRimFiles({ paths: options.rim, param: 'rim' }),
    ocsp: readOcspFiles({ paths: options.ocsp, param: 'ocsp' }),
  }
  const downloader = options.fetch === true ? new Downloader({ run, clock: systemClock, asOfMs, cache }) : null
  const from = downloader && { downloader, rimUrl, ocspUrl, evidence, roots, readSignedXml, asOfMs }
  const wantsOcsp = options.ocsp === undefined && options.anyOcsp !== true
  const judge = async () => {
    const rims = from !== null && options.rim === undefined ? await fetchRims(from) : given.rims
    const ocsp = from !== null && wantsOcsp ? await fetchOcsp(from, { rims, policy }) : given.ocsp
    // Saved evidence has no statement by a measured guest.
    const devtools = null
    return verifyGpus({ evidence, nonce: options.nonce, rims, readSignedXml, ocsp, roots, policy, asOfMs, devtools })
  }
  const judged = await (downloader?.judged(judge) ?? judge())
  const shown = { ...verdict([...judged.checks, ...checks]), simulated: judged.simulated }
  const kept = downloader?.keep(shown.checks) ?? {}
  const devices = { gpus: judged.gpus.map(gpuDocument), switches: judged.switches.map(switchDocument) }
  await run.result(
    { ...verdictDocument(shown), as_of: iso(asOfMs), ...devices, rims: rimDocuments(judged), ...kept },
    verdictSummary(shown, { verbose: options.verbose === true, paint: run.paint }),
  )
  await downloader?.showHints()
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

/** Returns the document of a switch, to be trusted like that of a GPU. */
function switchDocument({ facts, hwmodel, uncompared }: JudgedSwitch) {
  if (facts === null) return null
  const { biosVersion, pdi, gpuPdis, lockStatus, ueid, deviceSerial } = facts
  return {
    ...{ hwmodel, bios_version: biosVersion, ueid, device_serial: deviceSerial },
    ...{ pdi, gpu_pdis: [...gpuPdis], lock_status: lockStatus, uncompared },
  }
}

function rimDocuments({ rims }: GpuVerdict) {
  return rims.map(rim => (rim === null ? null : { kind: rim.kind, version: rim.version, product: rim.product }))
}
