// strongroom connect: verifies a gateway, then serves OpenAI and Anthropic clients of this machine through it. Effects:
// reads files, opens a loopback port, uses the network, and runs until a signal.

import { useHashes } from '../../attest/hash.ts'
import { type Check, isBroken } from '../../attest/verdict.ts'
import { equalConstantTime } from '../../base/bytes.ts'
import { onAbort, pause, systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { harmlessJson, harmlessLine } from '../../base/harmless.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { AdvisedFault, EXIT } from '../../terminal/exit.ts'
import { countOption, urlOption } from '../../terminal/options.ts'
import { paintFor, verdictDocument, verdictText, wantsColour } from '../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../terminal/verdict-exit.ts'
import { Endpoint, type Sender } from '../../verifier/fetch/endpoint/endpoint.ts'
import { type Listening, type LoopbackAddress, listenOnLoopback } from '../../verifier/fetch/endpoint/listen.ts'
import type { Advice } from '../../verifier/fetch/endpoint/refusal.plan.ts'
import { EvidenceError, KeyChangedError, VerificationError } from '../../verifier/fetch/errors.ts'
import type { Evidence } from '../../verifier/fetch/evidence.ts'
import { type AttestedSender, createAttestedSender } from '../../verifier/fetch/node-sender.ts'
import { nativeHashes } from '../measure/native.ts'
import { withFlags } from '../trust/pin-options.ts'
import { addTrustOptions, checksOfNamed, withOutsideFlag } from '../trust/trust-options.ts'
import { timeoutMsDefault } from '../verify/saved-document.ts'
import { asInputFault, type GatewayOptions, readAttestedOptions, sendWhileListed } from './attested-options.ts'
import { clientSetups, keyPlaceholder, setupText } from './client-setup.ts'
import { exampleModel, factsLine, factsOf, modelIds } from './gateway-facts.ts'
import { defaultListen, listenOption, listenText } from './listen-option.ts'
import { createProblemLog } from './problem-log.ts'
import { proxyWarning } from './proxy-warning.ts'

type ConnectOptions = GatewayOptions & { listen?: LoopbackAddress }

/** Longest wait for running responses after the first signal. */
const drainTimeoutMs = 30_000

export function addConnect(program: Command): void {
  const command = program
    .command('connect')
    .description('verify a gateway, and serve OpenAI and Anthropic clients of this machine through it')
    .argument('<url>', 'https://HOST:PORT of the gateway', urlOption)
    .option(
      '--listen <address>',
      `loopback address and port for clients; port 0 takes a free one; default ${listenText(defaultListen)}`,
      listenOption,
    )
    .option(
      '--instance <name>',
      'forward a port of an instance instead; `connect --instance NAME --help` has its options',
    )
    .option('--ca <file>', "PEM of the authority that issued the gateway's certificate; default: the system's")
    .option(
      '--timeout-ms <count>',
      `longest wait for the gateway's evidence; default ${timeoutMsDefault}`,
      countOption(100, 600_000),
    )
  addTrustOptions(command)
    .addHelpText(
      'after',
      `
The command verifies the gateway as \`verify gateway\` does, then prints what to set in each client. It verifies again
when the evidence is half an hour old, and when the gateway shows another key. While the gateway does not verify, it
sends nothing and answers each request with an error that names the failed check. It encrypts each request to the
attested key.
Clients send their own gateway key, which is passed on to the verified gateway. Neither keys nor prompts are stored or
logged. Web pages are refused: a request must have no Origin, and a Host that is a loopback address.
Loopback means that every program of this machine can connect, those of other users too; each needs a gateway key.
After the command has ended, take its address out of your clients: another user could listen at the port, and would
get their prompts and keys.
SIGINT or SIGTERM ends it after the requests under way, within ${drainTimeoutMs / 1000} seconds; a second signal ends it at once.
A signal before the gateway is verified ends it with exit code 1.
${helpText(
  'strongroom connect https://inference.agents.example:8442 --policy gateway.json',
  'strongroom connect https://inference.agents.example:8442 --policy gateway.json --ca ca.pem --listen 127.0.0.1:8080',
)}`,
    )
    .runs(connect)
}

async function connect(run: Run, url: URL, options: ConnectOptions): Promise<void> {
  useHashes(nativeHashes)
  const signals = watchSignals(run)
  const sender = await openSender(url, options)
  try {
    const evidence = await firstEvidence(run, { url, sender, options, signal: signals.first })
    if (evidence === null) return
    const problem = createProblemLog({ write: line => void run.io.stderr(line), clock: systemClock })
    const access = { baseUrl: new URL('/v1', url), sender: watchedSender({ url, sender, evidence, problem }) }
    const endpoint = new Endpoint({
      access: () => access,
      advice: adviceFor(url),
      log: { warn: problem },
    })
    const address = options.listen ?? defaultListen
    await using listening = listenOn(endpoint, address)
    await showReady(run, {
      url,
      evidence,
      hostname: address.hostname,
      origin: `http://${listenText({ ...address, port: listening.port })}`,
    })
    await new Promise<void>(resolve => onAbort(signals.first, resolve))
    await drained(run, { endpoint, listening, hurry: signals.second })
  } finally {
    sender.close()
  }
}

/** Aborted by the first and by the second signal. */
type Signals = { readonly first: AbortSignal; readonly second: AbortSignal }

function watchSignals({ io }: Run): Signals {
  const [first, second] = [new AbortController(), new AbortController()]
  const onSignal = () => (first.signal.aborted ? second : first).abort()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) io.onSignal(signal, onSignal)
  return { first: first.signal, second: second.signal }
}

function listenOn(endpoint: Endpoint, address: LoopbackAddress): Listening {
  try {
    return listenOnLoopback(endpoint, address)
  } catch (error) {
    if (!(error instanceof Fault)) throw error
    const remedy = 'end the program that uses the port, or choose another one with --listen'
    throw new AdvisedFault(error.code, error.message, { remedy, cause: error })
  }
}

async function openSender(url: URL, options: ConnectOptions): Promise<AttestedSender> {
  const { attested, list } = await readAttestedOptions(url, options)
  try {
    return sendWhileListed(createAttestedSender(attested), list)
  } catch (error) {
    throw asInputFault(error)
  }
}

type Opening = {
  readonly url: URL
  readonly sender: AttestedSender
  readonly options: ConnectOptions
  readonly signal: AbortSignal
}

/**
 * Verifies the gateway. Null after a signal, with exit code 1. Null too if the gateway does not verify: the verdict is
 * printed then, and the exit code is that of `verify gateway`.
 */
async function firstEvidence(run: Run, { url, sender, options, signal }: Opening): Promise<Evidence | null> {
  try {
    const evidence = await sender.verify({ signal })
    const { checks, simulated } = evidence
    if (options.verbose === true && !run.json) {
      await run.io.stdout(verdictText({ ok: true, simulated, checks: flagged(checks) }, run.paint))
    }
    return evidence
  } catch (error) {
    if (signal.aborted) {
      await run.hint('ended by a signal before the gateway was verified')
      run.exitWith(EXIT.failed)
      return null
    }
    if (error instanceof EvidenceError) throw unreachable(error, url)
    if (!(error instanceof VerificationError)) throw error
    const { details } = error
    const named = checksOfNamed(options)
    const shown = { ok: false, checks: flagged(error.checks) }
    // Print each failed check as a whole line: a summary would cut off the flag that accepts it.
    const text = verdictText(
      options.verbose === true ? shown : { ...shown, checks: shown.checks.filter(isBroken) },
      run.paint,
    )
    await run.result({ ready: false, ...verdictDocument(shown, { details, named }) }, text)
    run.exitWith(exitCodeOfVerdict(shown, { details, named }))
    return null
  }
}

function unreachable(error: EvidenceError, url: URL): AdvisedFault {
  const [message = '', remedy = `check that a gateway answers at ${url.origin}, then try again`] =
    error.message.split('. What to do: ')
  return new AdvisedFault('api.unreachable', message, { remedy: remedy.replace('`ca`', '--ca'), cause: error })
}

/** Replaces the library's options by flags in the reasons of checks. */
function flagged(checks: readonly Check[]): Check[] {
  return withFlags(checks).map(withOutsideFlag)
}

function adviceFor(url: URL): Advice {
  return {
    verify: `run strongroom verify gateway ${url.origin} with the options of your strongroom connect, which shows each failed check`,
    change:
      'if its operator changed it on purpose, put the new values into the policy and start strongroom connect again',
    where: 'inside strongroom connect',
  }
}

type Watched = {
  readonly url: URL
  readonly sender: AttestedSender
  readonly evidence: Evidence
  readonly problem: ReturnType<typeof createProblemLog>
}

/** Reports when another VM has replaced the gateway, and words errors for the command line. */
function watchedSender({ url, sender, evidence, problem }: Watched): Sender {
  let known = evidence
  return {
    close: sender.close,
    send: async (to, init) => {
      try {
        return await sender.send(to, init)
      } catch (error) {
        throw withFlagsIn(error)
      } finally {
        const now = sender.evidence() ?? known
        const isSame = equalConstantTime(known.tlsSpkiDigest, now.tlsSpkiDigest)
        known = now
        if (!isSame)
          problem('another VM verified', { reason: factsLine(url.host, factsOf(now.verdict), paintFor(false)) })
      }
    },
  }
}

function withFlagsIn(error: unknown): unknown {
  if (error instanceof VerificationError) return new VerificationError('the gateway', flagged(error.checks))
  if (!(error instanceof KeyChangedError) || !(error.cause instanceof VerificationError)) return error
  return new KeyChangedError(error.message, { cause: withFlagsIn(error.cause) })
}

type Ready = {
  readonly url: URL
  readonly origin: string
  readonly hostname: string
  readonly evidence: Evidence
}

async function showReady(run: Run, { url, origin, hostname, evidence }: Ready): Promise<void> {
  const facts = factsOf(evidence.verdict)
  const model = exampleModel(facts)
  const setups = clientSetups(origin, model)
  const warning = proxyWarning(run.io.env, hostname)
  if (run.json) {
    const clients = Object.fromEntries(setups.map(({ id, env, file, note }) => [id, { env, file, note }]))
    const addresses = { anthropic_base_url: origin, openai_base_url: `${origin}/v1` }
    const document = { ready: true, gateway: url.origin, ...addresses, verdict: facts, model, clients, warning }
    return await run.io.stdout(`${harmlessJson(JSON.stringify(document))}\n`)
  }
  const others = modelIds(facts).filter(id => id !== model)
  const paint = paintFor(wantsColour({ isTerminal: run.io.stdoutIsTerminal, env: run.io.env }))
  await run.io.stdout(`${factsLine(url.host, facts, paint)}
Serving clients of this machine at ${origin} until Ctrl-C. ${keyPlaceholder} is your gateway key (gw_…).
${harmlessLine(others.length === 0 ? '' : `Other models: ${others.join(', ')}. `)}GET /v1/models lists those of your key.
${warning === null ? '' : `${warning}\n`}
${setupText(setups)}`)
}

type Draining = { readonly endpoint: Endpoint; readonly listening: Listening; readonly hurry: AbortSignal }

async function drained(run: Run, { endpoint, listening, hurry }: Draining): Promise<void> {
  const { requestCount } = endpoint
  const over = new AbortController()
  void endpoint.drain().then(() => over.abort())
  listening.close()
  if (requestCount > 0) {
    const seconds = drainTimeoutMs / 1000
    await run.hint(`ending after ${requestCount} requests, within ${seconds} seconds; Ctrl-C ends them now`)
  }
  await pause(systemClock, drainTimeoutMs, AbortSignal.any([over.signal, hurry]))
}
