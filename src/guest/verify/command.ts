// strongroom-verify: five lines on this VM for its owner. Effects: reads files, calls sshd, the gateway and the
// agent.

import { connect } from 'node:net'
import { hostname } from 'node:os'
import { parseArgs } from 'node:util'
import { AMD_ROOTS, type TrustedRoot } from '../../attest/amd/roots.ts'
import { FLOOR_PARTS, type FloorWaivers } from '../../attest/policy/floors.ts'
import { type Policy, parsePolicy } from '../../attest/policy/policy.ts'
import { notChecked } from '../../attest/verdict.ts'
import { fromUtf8, toHex } from '../../base/bytes.ts'
import { systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { systemRandom } from '../../base/ids.ts'
import { matches } from '../../contract/check.ts'
import { exposureNames } from '../../contract/vm/exposure.ts'
import { run } from '../../linux/command.ts'
import { readTextOrNull } from '../../linux/files.ts'
import { readAllowlist } from '../../verifier/allowlist.ts'
import { defaultPolicy } from '../../verifier/default-policy.ts'
import { readWaiver } from '../../verifier/pins.ts'
import { readSimulatedRoot } from '../../verifier/simulated-root.ts'
import { LockoutFacts } from '../lockout/facts.ts'
import { judgeLockout } from '../lockout/judge.plan.ts'
import type { GuestPaths } from '../paths.ts'
import { measuredIn } from '../tpm/measured.ts'
import { encodeTpmRequest, type TpmRequest, tpmNonceBytes } from '../tpm/request.codec.ts'
import { TpmReply } from '../tpm/socket.ts'
import { jsonOf } from '../wire.codec.ts'
import { judgeGateway } from './gateway.ts'
import { judgeHardware } from './hardware.ts'
import { judgeHostKey } from './host-key.ts'
import { isGood, type Line, type LineName, lineOf, linesDocument, linesText } from './line.ts'
import { judgeTpm } from './tpm.ts'

export const verifyUsage = `usage: strongroom-verify [--json | --verbose] [--policy FILE] [--allowlist FILE] [--allow-outside NAME[=ORIGIN]]... [--allow NAME]... [--waive-floor PART=REASON]... [--trust-simulated-root FILE]

Prints PASS, FAIL or NOT CHECKED for each of five things; exit code 0 only when all five pass, 1 when not, 2 for wrong arguments.
  --policy FILE                the measurements and the operator key that you expect, of this VM and of the gateway; JSON
  --allowlist FILE             the workloads that you expect of the gateway
  --allow-outside NAME         an upstream outside of the gateway's VM that your prompts may go to; several times for several
  --allow NAME                 a setting of the gateway that shows more to its host, or keeps content; several times for several; names:
                               ${exposureNames.join(', ')}
  --waive-floor PART=REASON    accept this part of this VM's firmware below AMD's fixes, for this reason; several times for several; parts:
                               ${FLOOR_PARTS.join(', ')}; the gateway's firmware must pass all the same
  --trust-simulated-root FILE  PEM of a simulated platform, for development machines: the first line still fails, marked SIMULATED; that of a
                               TPM of the host still fails too; the exit code is 0 if nothing else is wrong
  --verbose                    each check below its line
  --json                       the same for programs
This is the VM's statement about itself. From outside: strongroom verify instance NAME.ORGANIZATION.DOMAIN
`

export type VerifySettings = {
  readonly paths: GuestPaths
  readonly sshPort: number
  /** Name of this instance as the kernel has it. */
  readonly name: string
  readonly nowMs: () => number
  readonly write: (text: string) => void
  readonly complain: (text: string) => void
}

export function verifySettings(paths: GuestPaths): VerifySettings {
  return {
    paths,
    sshPort: 22,
    name: hostname(),
    nowMs: systemClock.nowMs,
    write: text => void process.stdout.write(text),
    complain: text => void process.stderr.write(text),
  }
}

type Arguments = {
  readonly json: boolean
  readonly verbose: boolean
  readonly roots: readonly TrustedRoot[]
  readonly policy: Policy
  readonly allowlist: Uint8Array | 'any'
  readonly outside: readonly string[]
  readonly allow: readonly string[]
  readonly waivers: FloorWaivers
  /** PEM. */
  readonly simulatedRoot: Uint8Array | null
}

const fileBytesMax = 1024 * 1024
const timeoutMs = 30_000

/** Resolves with the exit code. */
export async function verify(argv: readonly string[], settings: VerifySettings): Promise<number> {
  const { paths, nowMs, name } = settings
  let asked: Arguments
  try {
    asked = await readArguments(argv)
  } catch (error) {
    settings.complain(`strongroom-verify: ${messageOf(error)}\n\n${verifyUsage}`)
    return 2
  }
  const { roots, policy, waivers } = asked
  const receipt = readTextOrNull(paths.receipt)
  const hardware = await judgeHardware({ name, roots, policy, waivers, nowMs: nowMs(), receipt })
  const nonce = systemRandom(tpmNonceBytes)
  const [scan, facts, tpmReply, gateway] = await Promise.all([
    scanHostKey(settings.sshPort),
    askFacts(paths.lockoutSocket),
    askTpm(paths.tpmSocket, { kind: 'quote', nonce }),
    judgeGateway({
      paths,
      policy,
      allowlist: asked.allowlist,
      outside: asked.outside,
      allow: asked.allow,
      keyDigest: hardware.statement?.gatewayKeyDigest ?? null,
      simulatedRoot: asked.simulatedRoot,
    }),
  ])
  const { statement } = hardware
  const tpm = await judgeTpm({
    reply: tpmReply,
    nonce,
    measured: measuredIn(paths),
    nowMs: nowMs(),
    roots,
    policy,
    receipt,
    measurement: statement?.image.measurement ?? null,
    random: systemRandom,
    ask: request => askTpm(paths.tpmSocket, request),
  })
  const isDevelopment = hardware.isSimulatedAlone
  const excused: LineName[] = isDevelopment ? [hardware.line.name, ...(tpm.isHostsAlone ? [tpm.line.name] : [])] : []
  const lines: Line[] = [
    hardware.line,
    tpm.line,
    judgeHostKey({ scan, statement }),
    gateway,
    lockoutLine(facts, statement === null ? null : toHex(statement.publicKeyDigest)),
  ]
  settings.write(
    asked.json
      ? `${JSON.stringify(linesDocument(lines, hardware.simulated, excused), null, 2)}\n`
      : linesText(lines, { verbose: asked.verbose }),
  )
  return isGood(lines, excused) ? 0 : 1
}

async function readArguments(argv: readonly string[]): Promise<Arguments> {
  const file = { type: 'string' } as const
  const flag = { type: 'boolean', default: false } as const
  const { values } = parseArgs({
    args: [...argv],
    options: {
      json: flag,
      verbose: flag,
      policy: file,
      allowlist: file,
      'trust-simulated-root': file,
      'allow-outside': { type: 'string', multiple: true, default: [] },
      allow: { type: 'string', multiple: true, default: [] },
      'waive-floor': { type: 'string', multiple: true, default: [] },
    },
  })
  const root = values['trust-simulated-root']
  const simulated =
    root === undefined
      ? null
      : await reading('trust-simulated-root', root, pem => ({ pem, root: readSimulatedRoot(pem) }))
  return {
    json: values.json,
    verbose: values.verbose,
    outside: values['allow-outside'],
    allow: values.allow,
    waivers: values['waive-floor'].reduce<FloorWaivers>(withWaiver, {}),
    simulatedRoot: simulated?.pem ?? null,
    roots: simulated === null ? AMD_ROOTS : [...AMD_ROOTS, simulated.root],
    policy:
      values.policy === undefined
        ? defaultPolicy({ vmpl: 'required' })
        : await reading('policy', values.policy, bytes => parsePolicy(fromUtf8(bytes))),
    allowlist:
      values.allowlist === undefined
        ? 'any'
        : await reading('allowlist', values.allowlist, bytes => {
            readAllowlist(bytes)
            return bytes
          }),
  }
}

function withWaiver(before: FloorWaivers, text: string): FloorWaivers {
  const waivers = readWaiver(text, before)
  if (typeof waivers === 'string') throw new Error(`--waive-floor ${text}: ${waivers}`)
  return waivers
}

/** Adds the option and the file to every error message. */
async function reading<T>(option: string, path: string, read: (bytes: Uint8Array) => T): Promise<T> {
  try {
    const file = Bun.file(path)
    if (file.size > fileBytesMax) throw new Error(`larger than ${fileBytesMax} bytes`)
    return read(await file.bytes())
  } catch (error) {
    throw new Error(`--${option} ${path}: ${messageOf(error)}`)
  }
}

async function scanHostKey(port: number): Promise<{ ok: boolean; text: string }> {
  const argv = ['ssh-keyscan', '-t', 'ed25519', '-T', '10', '-p', String(port), '127.0.0.1']
  try {
    const { stdout } = await run(argv, { timeoutMs, outputBytesMax: 65_536 })
    return stdout.trim() === '' ? { ok: false, text: 'sshd presents no key' } : { ok: true, text: stdout }
  } catch (error) {
    return { ok: false, text: messageOf(error) }
  }
}

const factsBytesMax = 1024 * 1024

/** Facts that the agent reads as root, or the reason why it reports none. */
async function askFacts(path: string): Promise<LockoutFacts | string> {
  try {
    const value = jsonOf(await readSocket(path, '?'))
    return matches(LockoutFacts, value) ? value : 'the statement of the agent differs from what this program finds'
  } catch (error) {
    return `the agent does not answer: ${messageOf(error)}`
  }
}

/** The agent's reply, or the reason why there is none. */
async function askTpm(path: string, request: TpmRequest): Promise<TpmReply | string> {
  try {
    const value = jsonOf(await readSocket(path, encodeTpmRequest(request)))
    return matches(TpmReply, value) ? value : 'the statement of the agent differs from its TPM'
  } catch (error) {
    return `the agent does not answer: ${messageOf(error)}`
  }
}

async function readSocket(path: string, question: string): Promise<string> {
  const socket = connect(path)
  const timer = setTimeout(() => socket.destroy(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
  let text = ''
  try {
    socket.write(question)
    for await (const chunk of socket) {
      text += String(chunk)
      if (text.endsWith('\n')) return text
      if (text.length > factsBytesMax) throw new Error('the answer is too long')
    }
    throw new Error('it closed without an answer')
  } finally {
    clearTimeout(timer)
    socket.destroy()
  }
}

function lockoutLine(facts: LockoutFacts | string, publicKeyDigest: string | null): Line {
  const name = 'external-access lockout'
  if (typeof facts === 'string') return lineOf(name, [notChecked('lockout', facts, true)], '')
  const checks = judgeLockout({ facts, publicKeyDigest })
  return lineOf(name, checks, `${checks.length} ways in are shut; the owner's key alone opens SSH`)
}
