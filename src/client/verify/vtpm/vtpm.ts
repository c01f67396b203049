// strongroom verify vtpm: verifies a vTPM's saved quote with the SNP report or TDX quote that binds its key. Effects:
// reads files; with --fetch the network, files of --cache.

import { Option } from 'commander'
import { parsedJson } from '../../../attest/encoding/json.ts'
import { sha256 } from '../../../attest/hash.ts'
import { FIELDS } from '../../../attest/report/report.ts'
import { encodeSpki } from '../../../attest/tpm/key.ts'
import { toHex } from '../../../base/bytes.ts'
import { iso, systemClock } from '../../../base/clock.ts'
import { resultOr } from '../../../base/result-or.ts'
import type { Command, Run } from '../../../terminal/command.ts'
import { hexOption, hexUpToOption, timeOption } from '../../../terminal/options.ts'
import { hexNumber, verdictDocument } from '../../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../../terminal/verdict-exit.ts'
import { REPORT_PINS } from '../../../verifier/pins.ts'
import { addFetchOptions, mirrorOption } from '../../collateral/fetch-options.ts'
import { pcsUrlDefault } from '../../tdx/collateral-urls.ts'
import { tdxDocument } from '../../tdx/judge.ts'
import { addPinOptions } from '../../trust/pin-options.ts'
import { addPolicyFlags } from '../../trust/policy-flags.ts'
import { verboseHelp } from '../../trust/trust-options.ts'
import { reportDocument } from '../../verdict/report-document.ts'
import { verdictSummary } from '../../verdict/summary.ts'
import { judgeVtpm, type VtpmResult } from './judge.ts'
import { KINDS, refuseOthers, type VtpmOptions } from './kinds.ts'
import { eventDocuments, pcrListOption, pcrOption } from './pcr-checks.ts'
import { pcrDocument } from './pcr-values.codec.ts'

/** TPM2B_DATA is as long as a TPMT_HA: an identifier and a SHA-512 digest. */
const qualifyingBytesMax = 66
/** 256: no line end within a nonce. */
const textAsHex = 'printf %s TEXT | xxd -p -c 256'

export function addVerifyVtpm(verify: Command): void {
  const command = verify
    .command('vtpm')
    .description(
      "verify a vTPM's quote: its SNP report or TDX quote, the link from there to the attestation key, nonce, PCRs and event log",
    )
    .addOption(
      new Option(
        '--kind <kind>',
        'what runs the vTPM: a paravisor on Azure (SNP: azure-hcl, TDX: azure-tdx), an SVSM, or the host, which never passes',
      )
        .choices(KINDS)
        .makeOptionMandatory(),
    )
    .option(
      '--evidence <file>',
      'azure-hcl, azure-tdx: JSON of Confidential Containers (az-snp-vtpm or az-tdx-vtpm, version 0, 1 or 2), attestation-rs, c8s or kettle instead of --quote, --signature, --pcrs, --report and --vek or --td-quote',
    )
    .option('--quote <file>', 'TPMS_ATTEST or TPM2B_ATTEST (tpm2_quote -m)')
    .option('--signature <file>', 'TPMT_SIGNATURE (tpm2_quote -s), or a bare RSASSA signature with SHA-256')
    .requiredOption(
      '--nonce <hex>',
      `the nonce that you chose for the quote; of a text: \`${textAsHex}\``,
      hexUpToOption(qualifyingBytesMax, `A text becomes hexadecimal by \`${textAsHex}\`.`),
    )
    .option('--pcrs <file>', 'quoted values: of tpm2_quote -o or tpm2_pcrread, or JSON like {"sha256": {"0": "HEX"}}')
    .option(
      '--pcr <index=hex>',
      'the value that this PCR must have; repeatable; its length selects the bank',
      pcrOption,
    )
    .option('--any-pcrs', 'accept any PCR values; without this --pcr must name the expected ones')
    .option('--event-log <file>', 'TCG2 event log (binary_bios_measurements), replayed to the quoted PCRs')
    .option(
      '--event-log-pcrs <list>',
      'PCRs that the log must explain, like 0-7,9; default: all quoted ones',
      pcrListOption,
    )
  addReportOptions(command)
  addKeyOptions(command)
  addPinOptions(
    addPolicyFlags(command),
    REPORT_PINS.filter(pin => pin !== 'vmpl'),
  )
    .option('--verbose', verboseHelp)
    .examples(
      'strongroom verify vtpm --kind azure-hcl --evidence evidence.json --crl crl.der --policy policy.json --nonce $(cat nonce.hex) --pcr 4=$(cat pcr4.hex) --pcr 7=$(cat pcr7.hex)',
      'strongroom verify vtpm --kind azure-hcl --report hcl.bin --vek vcek.pem --crl crl.der --policy policy.json --quote quote.msg --signature quote.sig --pcrs quote.pcrs --nonce $(cat nonce.hex) --pcr 4=$(cat pcr4.hex) --pcr 7=$(cat pcr7.hex)',
      'strongroom verify vtpm --kind azure-tdx --evidence evidence.json --fetch --cache collateral --policy tdx.json --nonce $(cat nonce.hex) --pcr 4=$(cat pcr4.hex) --pcr 7=$(cat pcr7.hex)',
      'strongroom verify vtpm --kind svsm --report report.bin --vek vcek.pem --crl crl.der --policy policy.json --report-nonce $(cat report-nonce.hex) --ek manifest.bin --ak ak.pub --credential-ek manifest.bin --credential-name $(cat name.hex) --credential-secret secret.bin --activated activated.bin --quote quote.msg --signature quote.sig --pcrs quote.pcrs --nonce $(cat nonce.hex) --pcr 9=$(cat pcr9.hex)',
      'strongroom verify vtpm --kind host --ak ak.pem --quote quote.msg --signature quote.sig --pcrs quote.pcrs --nonce $(cat nonce.hex) --any-pcrs   # fails, and shows whether the quote is sound',
    )
    .runs(verifyVtpm)
}

function addReportOptions(command: Command): void {
  command
    .option(
      '--report <file>',
      'azure-hcl, azure-tdx: the HCL report of NV index 0x01400001; svsm: the report of 1184 bytes',
    )
    .option('--vek <file>', 'VCEK or VLEK certificate, DER or PEM; a PEM bundle may contain its chain')
    .option('--chain <file>', "PEM of ASK or ASVK and ARK; default: AMD's own, which are built in")
    .option('--crl <file>', "the ARK's revocation list, DER or PEM")
    .option('--as-of <time>', 'verify for this time in UTC, like 2025-06-01T00:00:00Z; default now', timeOption)
    .option(
      '--policy <file>',
      'JSON as in `verify policy-schema`, and the VMPL is always 0; azure-tdx: as in `verify tdx-policy-schema`; exit code 1, not 6, if it refuses the report or TDX quote: the quote of the vTPM is then not judged',
    )
    .option('--masked-chip-id', 'accept a platform that hides its chip_id; the VCEK is then not compared with it')
    .option('--certificate-table <file>', "the host's certificate table, for a policy with certificateEntries")
    .option(
      '--trust-simulated-root <file>',
      'PEM of a simulated ARK and ASK, and for VLEKs the ASVK; azure-tdx: of a simulated root; the verdict is then marked SIMULATED',
    )
    .option(
      '--td-quote <file>',
      'azure-tdx: the TDX quote over the TD report in the HCL report, or hexadecimal, base64 or base64url of it',
    )
    .option('--collateral <file>', "azure-tdx: JSON of Intel's signed documents about the platform, as in `help tdx`")
    .option('--pcs-url <url>', `with --fetch: a mirror of ${pcsUrlDefault}, as of \`verify tdx\``, mirrorOption)
  addFetchOptions(command, "the collateral of azure-tdx from Intel's service, unless --collateral names it")
}

function addKeyOptions(command: Command): void {
  command
    .option(
      '--ak <file>',
      'attestation key: TPM2B_PUBLIC (tpm2_readpublic -o) or TPMT_PUBLIC; except for svsm PEM or DER, too; azure-hcl and azure-tdx need none, and compare it with the one that the report names',
    )
    .option('--ek <file>', "svsm: the manifest of its vTPM, which is the endorsement key's TPMT_PUBLIC")
    .option('--report-nonce <hex>', 'svsm: the 64 bytes of the request to the SVSM', hexOption(FIELDS.reportData[1]))
    .option('--credential-ek <file>', 'svsm: the endorsement key given to tpm2_makecredential: its public area or PEM')
    .option('--credential-name <hex>', 'svsm: the Name given to tpm2_makecredential', hexUpToOption(qualifyingBytesMax))
    .option('--credential-secret <file>', 'svsm: the secret given to tpm2_makecredential, 16 bytes or more')
    .option('--activated <file>', 'svsm: the output of tpm2_activatecredential in the guest')
}

async function verifyVtpm(run: Run, options: VtpmOptions): Promise<void> {
  refuseOthers(options)
  const asOf = options.asOf ?? systemClock.nowMs()
  const judged = await judgeVtpm(run, options, asOf)
  const { hardware } = judged
  const { snp = null, tdx = null, downloader = null } = hardware ?? {}
  const shown = {
    ok: judged.ok,
    checks: judged.checks,
    ...(hardware === null ? {} : { simulated: hardware.simulated }),
  }
  const kept = downloader?.keep(tdx?.checks ?? []) ?? {}
  await run.result(
    {
      ...verdictDocument(shown),
      kind: judged.kind,
      as_of: iso(asOf),
      product: snp?.product ?? null,
      report: snp?.report == null ? null : reportDocument(snp.report, snp.product),
      tdx: tdx === null ? null : tdxDocument(tdx),
      ...quoteDocument(judged),
      ...kept,
    },
    verdictSummary(shown, { verbose: options.verbose === true, paint: run.paint }),
  )
  await downloader?.showHints()
  run.exitWith(exitCodeOfVerdict(shown))
}

/** Returns the contents of the files, to be trusted only in a good verdict. */
function quoteDocument({ files, attestationKey, runtimeData, isExplained, logged }: VtpmResult) {
  const { quote, signature, pcrs, log } = files
  return {
    runtime_data: runtimeData === null ? null : resultOr(() => parsedJson('runtime data', runtimeData), null),
    attestation_key_sha256: attestationKey === null ? null : toHex(sha256(encodeSpki(attestationKey))),
    quote: {
      nonce: toHex(quote.extraData),
      qualified_signer: toHex(quote.qualifiedSigner),
      signature: { scheme: signature.scheme, hash: signature.hash },
      clock_ms: quote.clock.toString(),
      clock_safe: quote.clockSafe,
      reset_count: quote.resetCount,
      restart_count: quote.restartCount,
      firmware_version: hexNumber(quote.firmwareVersion),
      pcr_digest: toHex(quote.pcrDigest),
    },
    pcrs: pcrDocument(pcrs),
    event_log: log === null ? null : { events: isExplained ? eventDocuments(log.decoded, { pcrs, logged }) : [] },
  }
}
