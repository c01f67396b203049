// strongroom verify gateway: verifies a fresh attestation, over the connection that it attests, or a saved one.
// Effects: the network, files.

import { sha256 } from '../../attest/hash.ts'
import { kemPublicKey } from '../../attest/receipt/kem.ts'
import { type Check, fail, notChecked, pass, type Verdict, verdict } from '../../attest/verdict.ts'
import { toBase64Url, toHex } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { systemRandom } from '../../base/ids.ts'
import type { LogFact } from '../../contract/http/log-entry.ts'
import { workloadBytesMax } from '../../contract/vm/workload.ts'
import { spkiDigestOf } from '../../linux/keys/spki.ts'
import type { TlsGet } from '../../linux/net/tls-get.ts'
import { getByEnvironment } from '../../linux/net/tunnel.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { MIB, readInput, readTextInput } from '../../terminal/input-file.ts'
import { countOption, timeOption, urlOption } from '../../terminal/options.ts'
import { refusalIn } from '../../terminal/refusal.ts'
import { verdictDocument } from '../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../terminal/verdict-exit.ts'
import {
  attestationBytesMax,
  freshAgeMsMax,
  type GatewayQuestion,
  type GatewayVerdict,
  nonceBytes,
} from '../../verifier/gateway.ts'
import { verifyGateway } from '../../verifier/verify-gateway.ts'
import { workloadIn } from '../../verifier/workload.ts'
import type { LogJudgement } from '../log/judge.ts'
import {
  addLogOptions,
  askChipList,
  askLog,
  type LogOptions,
  logDocument,
  loggedPins,
  readLogOptions,
  withLog,
} from '../log/options.ts'
import { withFlags } from '../trust/pin-options.ts'
import { measurementSources } from '../trust/policy-flags.ts'
import {
  addTrustOptions,
  checksOfNamed,
  readTrust,
  type TrustOptions,
  withOutsideFlag,
} from '../trust/trust-options.ts'
import { type Plain, plainVerdict } from '../verdict/plain.ts'
import { gatewayWords } from './gateway-facts.ts'
import { addBoundGpuOptions, type BoundGpuOptions, expectedGpuChecks, readJudgeGpus } from './gpu/bound.ts'
import { gpuDocument } from './gpu/gpu.ts'
import { askKeyMaker, readGatewayKey, unaskedKeyMaker } from './keys/gateway-key.ts'
import { nonceOption } from './receipt-options.ts'
import { refuseConnectionOptions, timeoutMsDefault } from './saved-document.ts'

type GatewayOptions = TrustOptions &
  LogOptions &
  BoundGpuOptions & {
    ca?: string
    keyFile?: string
    timeoutMs?: number
    document?: string
    nonce?: Uint8Array
    asOf?: number
  }

const clientLogHelp = `
~/.config/strongroom/client.toml gives the log and its options alone (log, log_key, witness and so on); see \`strongroom help log\`.
`

export function addVerifyGateway(verify: Command): void {
  const command = verify
    .command('gateway')
    .description('request fresh attestation of a gateway, and verify that it names the key of this connection')
    .argument('[url]', 'https://HOST:PORT', urlOption)
    .option('--document <file>', 'a saved response of GET /attestation, instead of a url; needs no network')
    .option('--nonce <text>', 'the nonce of the request for --document, 43 characters', nonceOption)
    .option(
      '--as-of <time>',
      'verify --document for this time in UTC, like 2026-06-01T00:00:00Z; default now',
      timeOption,
    )
    .option('--ca <file>', "PEM of the authority that issued the gateway's certificate; default: the system's")
    .option(
      '--key-file <file>',
      'file with your gateway key: queries the verified gateway whether its host minted the key',
    )
    .option(
      '--timeout-ms <count>',
      `longest wait for the whole response; default ${timeoutMsDefault}`,
      countOption(100, 600_000),
    )
  addBoundGpuOptions(addLogOptions(addTrustOptions(command)))
    .addHelpText(
      'after',
      clientLogHelp +
        helpText(
          'strongroom verify gateway https://gateway.example:8442 --policy policy.json --workload workload.json',
          'strongroom verify gateway https://127.0.0.1:8442 --ca ca.pem --policy policy.json --allowlist allowlist.json --configuration gateway-configuration.json --trust-simulated-root root.pem',
          'strongroom verify gateway --document attestation.json --workload workload.json --nonce TEXT --policy policy.json',
          'strongroom verify gateway https://gateway.example:8442 --in-log --log https://instances.example:8441 --log-key KEY --witness KEY',
        ),
    )
    .runs(verifyAt)
}

/** Returns the document. Beside the groups, it contains every check of every receipt. */
export function attestationDocument({ receipts, gateway, keys, gpus }: GatewayVerdict) {
  const worker = receipts.find(({ target }) => target === 'inference-worker')?.verdict.statement ?? null
  return {
    issued_at: gateway === null ? null : iso(gateway.issuedAt),
    image: gateway === null ? null : { name: gateway.image.name, measurement: toHex(gateway.image.measurement) },
    configuration_sha256: gateway?.configurationDigest == null ? null : toHex(gateway.configurationDigest),
    gpu_evidence_sha256: worker?.gpuEvidenceDigest == null ? null : toHex(worker.gpuEvidenceDigest),
    gpus: gpus.map(gpuDocument),
    // Keys for EHBP, in hexadecimal as its stock client expects them; trusted only in a good verdict.
    encryption_keys:
      keys === null ? null : { x25519: toHex(kemPublicKey('x25519', keys)), xwing: toHex(kemPublicKey('xwing', keys)) },
    receipts: receipts.map(({ target, verdict: item }) => ({ target, ...verdictDocument(item) })),
  }
}

async function verifyAt(run: Run, url: URL | undefined, options: GatewayOptions): Promise<void> {
  const find = evidenceOf(url, options)
  const key = options.keyFile === undefined ? null : readGatewayKey(options.keyFile)
  const log = await readLogOptions(run, options)
  const trust = await readTrust(loggedPins(options, log))
  const gpus = await readJudgeGpus(options)
  const verbose = options.verbose === true
  const named = checksOfNamed(options)
  const { outside = [], allow = [] } = trust
  const sources = measurementSources(trust.policy, options, options.policy)
  const show = (whole: Verdict, found: GatewayVerdict | null = null, logged: LogJudgement | null = null) => {
    const { checks } = whole
    const plain = gatewayWords({ found, checks, argv: run.argv, sources, outside, allow }, url?.host ?? null)
    return showVerdict(run, { whole, found, plain, verbose, logged, named })
  }
  const evidence = await find(trust.workload ?? null)
  if ('failed' in evidence) return await show(verdict(evidence.failed))
  const { body, connection, ...asked } = evidence
  const found = await verifyGateway(body, { ...trust, gpus, ...asked })
  const logged = await askLog(run, gatewayFact(found), log, asked.asOf)
  const chips = await askChipList(trust.policy, log, asked.asOf)
  const checks = [...connection, ...found.checks, ...chips, ...expectedGpuChecks(options, found)]
  const judged = verdict(withLog(checks, logged, log))
  const isGood = judged.ok && found.ok
  const maker =
    key === null || url === undefined ? [] : [isGood ? await askMaker(url, key, found, options) : unaskedKeyMaker()]
  const whole = verdict([...judged.checks, ...maker])
  await show({ ok: whole.ok && found.ok, checks: withFlags(whole.checks).map(withOutsideFlag) }, found, logged)
  if (isGood && url !== undefined && key === null) await run.hint(makerHint)
}

const makerHint =
  '--key-file FILE shows whether the host minted your key, so that it can act as you. So does GET /v1/usage: `key_made_by`.'

async function askMaker(url: URL, key: string, { gateway }: GatewayVerdict, options: GatewayOptions): Promise<Check> {
  const tlsSpkiDigest = gateway?.tlsSpkiDigest ?? null
  if (tlsSpkiDigest === null) return unaskedKeyMaker()
  return await askKeyMaker({
    url,
    key,
    tlsSpkiDigest,
    ca: readCa(options.ca),
    timeoutMs: options.timeoutMs ?? timeoutMsDefault,
  })
}

function readCa(path: string | undefined): string | undefined {
  return path === undefined ? undefined : readTextInput({ path, param: 'ca', bytesMax: MIB })
}

type Evidence = Pick<GatewayQuestion, 'nonce' | 'asOf' | 'ageMsMax' | 'tlsSpkiDigest'> & {
  readonly body: Uint8Array
  readonly workload: Uint8Array | null
  /** Checks of the connection that delivered it; empty for a saved document. */
  readonly connection: readonly Check[]
}

/** `failed`: checks that explain why there is no evidence. */
type FindEvidence = (workload: Uint8Array | null) => Promise<Evidence | { readonly failed: readonly Check[] }>

/** Throws Fault invalid_request unless exactly one of url and --document is given, without options of the other one. */
function evidenceOf(url: URL | undefined, options: GatewayOptions): FindEvidence {
  const { document, nonce, asOf } = options
  if ((url === undefined) === (document === undefined)) {
    const message = `exactly one of a url and --document is there to be verified; ${url === undefined ? 'none is' : 'both are'} there`
    throw new InputFault(message, { param: 'document', remedy: 'name the gateway by its https://HOST:PORT' })
  }
  const { timeoutMs = timeoutMsDefault } = options
  if (document !== undefined) refuseConnectionOptions({ ca: options.ca, 'timeout-ms': options.timeoutMs })
  const ca = readCa(options.ca)
  if (url !== undefined) {
    if (nonce !== undefined || asOf !== undefined) {
      const param = nonce === undefined ? 'as-of' : 'nonce'
      throw new InputFault(`--${param} is for a saved --document; a live gateway gets a new nonce`, {
        param,
        remedy: `leave out --${param}, or name the --document`,
      })
    }
    return workload => ask({ url, ca, timeoutMs }, workload)
  }
  if (options.keyFile !== undefined) {
    throw new InputFault('--key-file is for a live gateway, not for a saved --document', {
      param: 'key-file',
      remedy: 'leave out --key-file, or name the gateway by its https://HOST:PORT',
    })
  }
  const body = readInput({ path: document ?? '', param: 'document', bytesMax: attestationBytesMax })
  return async workload => ({
    ...{ body, workload, connection: [], nonce: nonce ?? 'any', asOf: asOf ?? systemClock.nowMs() },
    // The nonce proves that the document was fresh. The two clocks need not agree.
    ...{ ageMsMax: 'any', tlsSpkiDigest: 'any' },
  })
}

async function ask(
  { url, ca, timeoutMs }: Pick<TlsGet, 'url' | 'ca' | 'timeoutMs'>,
  workload: Uint8Array | null,
): ReturnType<FindEvidence> {
  const nonce = systemRandom(nonceBytes)
  const address = new URL(`/attestation?nonce=${toBase64Url(nonce)}`, url)
  const response = await getByEnvironment({ url: address, ca, timeoutMs, bodyBytesMax: attestationBytesMax }).catch(
    (error: unknown) => fail('connection', `${url.host}: ${messageOf(error)}`),
  )
  if (!('body' in response)) return { failed: [response] }
  const { certificateFault, status, body } = response
  const certificate =
    certificateFault === null ? pass('tls-certificate') : fail('tls-certificate', `${certificateFault}; see --ca`)
  const connection = [pass('connection', url.host), certificate]
  if (status !== 200) {
    return { failed: [...connection, fail('attestation-format', `${status}: ${refusalIn(body, 'no attestation')}`)] }
  }
  return {
    ...{ body, connection, nonce, asOf: systemClock.nowMs(), ageMsMax: freshAgeMsMax },
    workload: workload ?? (await fetchWorkload({ url, ca, timeoutMs })),
    tlsSpkiDigest: spkiDigestOf(response.certificate),
  }
}

/** Returns the log entry of this gateway VM's start; null if its receipts are unreadable. */
function gatewayFact({ gateway, keys, receipts }: GatewayVerdict): LogFact | null {
  const report = receipts[0]?.verdict.report ?? null
  if (gateway === null || keys === null || report === null) return null
  return {
    kind: 'gateway-start',
    measurement: toHex(gateway.image.measurement),
    workload: toHex(report.hostData),
    operator_key: toHex(gateway.operatorKey),
    receipt_key: toHex(sha256(keys.ed25519)),
  }
}

/** Fetches the gateway's workload.json, whose digest the receipts contain. Null if it has none. */
async function fetchWorkload({
  url,
  ca,
  timeoutMs,
}: Pick<TlsGet, 'url' | 'ca' | 'timeoutMs'>): Promise<Uint8Array | null> {
  const address = new URL('/workload.json', url)
  // If it is missing, receipts that contain its digest do not verify.
  return await getByEnvironment({ url: address, ca, timeoutMs, bodyBytesMax: workloadBytesMax })
    .then(workloadIn)
    .catch(() => null)
}

type ShownVerdict = {
  readonly whole: Verdict
  readonly found: GatewayVerdict | null
  readonly plain: Plain
  readonly logged: LogJudgement | null
  readonly verbose: boolean
  /** See `Sorting`. */
  readonly named: ReadonlySet<string>
}

async function showVerdict(run: Run, { whole, found, plain, logged, verbose, named }: ShownVerdict): Promise<void> {
  const remark = notChecked('operational-status', 'attestation covers launch and admission only', false)
  const shown = { ok: whole.ok, checks: [...whole.checks, remark], simulated: found?.simulated ?? false }
  const details = found?.receipts.flatMap(({ verdict }) => verdict.checks) ?? []
  const attestation = found === null ? {} : attestationDocument(found)
  const sorting = { details, named }
  const document = { ...verdictDocument(shown, sorting), ...attestation, ...logDocument(logged) }
  await run.result(document, plainVerdict(shown, plain, { verbose, details, sorting, paint: run.paint }))
  run.exitWith(exitCodeOfVerdict(shown, sorting))
}
