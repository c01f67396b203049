// strongroom verify gateway: fresh attestation of a gateway, over the very connection that it vouches for. Effects: the network.

import { type Command, InvalidArgumentError } from 'commander'
import { fail, notChecked, pass, type Verdict, verdict } from '../../attest/verdict.ts'
import { toBase64Url } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { systemRandom } from '../../base/ids.ts'
import { spkiDigestOf } from '../../http/pair.ts'
import { readAllowlist } from '../../verifier/allowlist.ts'
import {
  type AttestationQuestion,
  type AttestationVerdict,
  attestationBytesMax,
  verifyAttestation,
} from '../../verifier/gateway.ts'
import { type Cli, helpText, type Run, runOf } from '../cli.ts'
import { EXIT } from '../exit.ts'
import { countOption, MIB, readInput, readingInput, readTextInput } from '../input-file.ts'
import { verdictDocument, verdictText } from '../verdict-render.ts'
import { type GatewayAnswer, getFromGateway } from './gateway-connection.ts'
import { readCrl, readPolicy, readRoots } from './trust-inputs.ts'

type TrustOptions = {
  policy?: string
  allowlist?: string
  crl?: string
  requireCrl?: boolean
  trustSimulatedRoot?: string
}
type GatewayOptions = TrustOptions & { ca?: string; timeoutMs: number }

const nonceBytes = 32
/** Evidence for a nonce of ours cannot be older than the question; this is for clocks. */
const ageMsMax = 300_000

export function addVerifyGateway(verify: Command, cli: Cli): void {
  const command = verify
    .command('gateway')
    .description("verify a gateway's fresh attestation and that this connection's key is in it")
    .argument('<url>', 'https://HOST:PORT', urlArgument)
    .option('--ca <file>', 'PEM of the authority that its certificate must come from; default those of the system')
    .option('--timeout-ms <count>', 'longest wait for the whole answer', countOption(100, 600_000), 30_000)
  addTrustOptions(command)
    .addHelpText(
      'after',
      helpText(
        'strongroom verify gateway https://gateway.example:8442 --policy policy.json --allowlist allowlist.json',
        'strongroom verify gateway https://127.0.0.1:8442 --ca ca.pem --trust-simulated-root root.pem --json',
      ),
    )
    .action(async (url: URL, options: GatewayOptions, one: Command) => verifyGateway(runOf(cli, one), url, options))
}

/** Shared with `verify response`. */
export function addTrustOptions(command: Command): Command {
  return command
    .option('--policy <file>', 'JSON as in `verify policy-schema`; measurements and operator key are named there')
    .option('--allowlist <file>', 'the allowlist whose digest, images and commands the receipts must have')
    .option('--crl <file>', 'revocation list, DER or PEM, in the place of the one that comes with the evidence')
    .option('--require-crl', 'fail without a revocation list')
    .option('--trust-simulated-root <file>', 'PEM of a simulated ARK, ASK and ASVK; the verdict then says SIMULATED')
}

/** What the options say, the same for a fresh attestation and for a saved one. */
export async function trustOf(options: TrustOptions) {
  const { allowlist: path } = options
  const read = (file: string) => readInput({ path: file, param: 'allowlist', bytesMax: MIB })
  return {
    roots: await readRoots(options.trustSimulatedRoot),
    policy: await readPolicy(options.policy),
    crl: await readCrl(options.crl),
    requireCrl: options.requireCrl === true,
    allowlist:
      path === undefined
        ? ('any' as const)
        : await readingInput(`--allowlist ${path}`, () => readAllowlist(read(path))),
  } satisfies Partial<AttestationQuestion>
}

/** With every check of every receipt beside the groups. */
export function attestationDocument({ receipts, gateway }: AttestationVerdict) {
  return {
    issued_at: gateway === null ? null : iso(gateway.issuedAt),
    image: gateway === null ? null : { name: gateway.image.name, measurement: gateway.image.measurement.toHex() },
    receipts: receipts.map(({ target, verdict: one }) => ({ target, ...verdictDocument(one) })),
  }
}

async function verifyGateway(run: Run, url: URL, options: GatewayOptions): Promise<void> {
  const { ca: caPath } = options
  const ca = caPath === undefined ? undefined : readTextInput({ path: caPath, param: 'ca', bytesMax: MIB })
  const trust = await trustOf(options)
  const nonce = systemRandom(nonceBytes)
  const asked = new URL(`/attestation?nonce=${toBase64Url(nonce)}`, url)
  let answer: GatewayAnswer
  try {
    const { timeoutMs } = options
    answer = await getFromGateway({ url: asked, ca, timeoutMs, bodyBytesMax: attestationBytesMax })
  } catch (error) {
    return await show(run, verdict([fail('connection', `${url.host}: ${messageOf(error)}`)]))
  }
  const { certificateFault, status, body } = answer
  const certificate =
    certificateFault === null ? pass('tls-certificate') : fail('tls-certificate', `${certificateFault}; see --ca`)
  const connection = [pass('connection', url.host), certificate]
  if (status !== 200) {
    return await show(run, verdict([...connection, fail('attestation-format', `${status}: ${errorOf(body)}`)]))
  }
  const found = await verifyAttestation(body, {
    ...trust,
    nonce,
    asOf: systemClock.nowMs(),
    ageMsMax,
    tlsSpkiDigest: spkiDigestOf(answer.certificate),
  })
  const whole = verdict([...connection, ...found.checks])
  await show(run, { ok: whole.ok && found.ok, checks: whole.checks }, found)
}

async function show(run: Run, whole: Verdict, found: AttestationVerdict | null = null): Promise<void> {
  const remark = notChecked('operational-status', 'attestation tells of launch and admission only', false)
  const shown = { ok: whole.ok, checks: [...whole.checks, remark], simulated: found?.simulated ?? false }
  const document = { ...verdictDocument(shown), ...(found === null ? {} : attestationDocument(found)) }
  await run.result(document, verdictText(shown, run.paint))
  if (!shown.ok) run.exitWith(EXIT.failed)
}

/** The code of an error of the gateway's, as far as there is one. */
function errorOf(body: Uint8Array): string {
  try {
    const { error } = JSON.parse(new TextDecoder().decode(body.subarray(0, 4096)))
    return `${error.code}: ${error.message}`
  } catch {
    return 'no attestation'
  }
}

function urlArgument(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null
  const isPlain = url?.protocol === 'https:' && url.username === '' && url.password === ''
  if (url === null || !isPlain || url.pathname !== '/' || url.search !== '' || url.hash !== '') {
    throw new InvalidArgumentError('It must be https://HOST:PORT, with nothing after it.')
  }
  return url
}
