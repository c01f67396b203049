// The claim gives a waiting VM to its customer. Effects: files, host name, sshd. A failed claim leaves all as it was.

import * as fs from 'node:fs'
import { fromUtf8 } from '../base/bytes.ts'
import { messageOf, wrapFault } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { matches } from '../contract/check.ts'
import { type EgressPolicy, openPolicy } from '../contract/http/egress-policy.ts'
import type { SealedClaim } from '../contract/vm/agent.ts'
import { Claim, type DrawnKey } from '../contract/vm/claim.ts'
import { ensureDir, type Owner, readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import {
  type ClaimPlan,
  claimLeftovers,
  claimProblem,
  type PlannedDirectory,
  type PlannedFile,
  planClaim,
} from './claim.plan.ts'
import { ClaimRecord, recordOf } from './claim-record.ts'
import type { Daemon } from './daemon.ts'
import type { GatewaySettings } from './gateway/expectation.codec.ts'
import { drawGatewayKey } from './gateway/key.ts'
import type { Identity } from './identity.ts'
import { recordedNetwork } from './network.ts'
import type { GuestPaths } from './paths.ts'
import type { Reach } from './reach/reach.ts'
import { jsonOf, type Refusal, refuse } from './wire.codec.ts'

export type Claiming = {
  /** The claim in force, or null. */
  readonly record: () => ClaimRecord | null
  /** Idempotent for the same claim; refuses a different one. One call at a time. */
  readonly claim: (
    sealed: SealedClaim,
    identity: Pick<Identity, 'openBox' | 'sshHostKey'>,
  ) => Promise<{ ok: true; claimId: string } | Refusal>
  /** Call it once, first: takes over the claim of an agent that died, or undoes its half of one. */
  readonly restore: () => Promise<void>
}

export type ClaimDeps = {
  readonly paths: GuestPaths
  readonly system: Owner
  readonly login: Owner
  readonly sshd: Daemon
  /** The endpoint of the inference gateway. */
  readonly gateway: Daemon
  readonly reach: Reach
  readonly random: RandomBytes
  /** Source of this VM's reports. */
  readonly platform: () => Promise<GatewaySettings['platform']>
  readonly log: Logger
}

export function createClaiming(deps: ClaimDeps): Claiming {
  const { paths, sshd, gateway, reach, log } = deps
  let record = readRecord(paths)

  return {
    record: () => record,
    claim: async (sealed, identity) => {
      const platform = await deps.platform()
      const opened = openClaim(identity.openBox(sealed), platform)
      if (!opened.ok) return opened
      const { claim } = opened
      const { claimId } = claim
      // A repeated claim gets the key of the claim in force. The host learns of no key before the record is written.
      const isFirst = claim.inference.drawsKey && record === null
      const { key, drawn } = isFirst ? drawGatewayKey(deps.random) : { key: null, drawn: keyInForce(claim, record) }
      const { sshHostKey } = identity
      const wanted = recordOf(claim, { sshHostKey, network: recordedNetwork(paths), key: drawn })
      if (record !== null) {
        const same = record.claimId === claimId && record.sha256 === wanted.sha256
        return same ? { ok: true, claimId } : refuse('claimed', 'claim: a different claim is in force')
      }
      const plan = planClaim(claim, { paths, platform, key })
      const failure = await applyAll(steps(deps, plan, { claim, record: wanted }), log)
      if (failure !== null) return refuse('failed', failure)
      record = wanted
      return { ok: true, claimId }
    },
    restore: async () => {
      if (record !== null) {
        sshd.start()
        if (fs.existsSync(paths.gatewaySettings)) gateway.start()
        await reach.restore()
        return
      }
      await gateway.stop()
      await sshd.stop()
      await reach.reset()
      for (const path of claimLeftovers(paths)) fs.rmSync(path, { force: true })
    },
  }
}

function keyInForce(claim: Claim, record: ClaimRecord | null): DrawnKey | null {
  return claim.inference.drawsKey ? (record?.document.claim.inference.key ?? null) : null
}

/** One change and how to undo it. `undo` also runs when `apply` failed half-way. */
type Step = {
  readonly name: string
  readonly apply: () => void | Promise<void>
  readonly undo: () => void | Promise<void>
}

type Claimed = { readonly claim: Claim; readonly record: ClaimRecord }

function steps(deps: ClaimDeps, plan: ClaimPlan, { claim, record }: Claimed): Step[] {
  const { paths, system, login, sshd, gateway, reach } = deps
  const owners = { system, login }
  const hasGateway = plan.files.some(({ path }) => path === paths.gatewaySettings)
  return [
    ...plan.directories.map(directory => directoryStep(directory, login)),
    ...plan.files.map(file => fileStep(file, owners[file.owner])),
    hostnameStep(paths.kernelHostname, plan.hostname),
    // Before sshd: no program of the owner's runs without it.
    ...(claim.egress.policy === undefined ? [] : [reachStep(reach, claim, claim.egress.policy)]),
    // Not awaited: both listen a moment later, while the evidence is made.
    { name: 'sshd', apply: () => sshd.start(), undo: () => sshd.stop() },
    ...(hasGateway ? [{ name: 'gateway', apply: () => gateway.start(), undo: () => gateway.stop() }] : []),
    fileStep({ path: paths.claimRecord, content: JSON.stringify(record), mode: 0o600, owner: 'system' }, system),
  ]
}

function directoryStep({ path, mode }: PlannedDirectory, owner: Owner): Step {
  let isOurs = false
  return {
    name: path,
    apply: () => {
      isOurs = !fs.existsSync(path)
      if (isOurs) ensureDir(path, { mode, owner })
    },
    undo: () => {
      if (isOurs && fs.existsSync(path)) fs.rmdirSync(path)
    },
  }
}

function fileStep({ path, content, mode }: PlannedFile, owner: Owner): Step {
  let before: string | null = null
  let wrote = false
  return {
    name: path,
    apply: () => {
      before = readTextOrNull(path)
      writeFileAtomic(path, content, { mode, owner })
      wrote = true
    },
    undo: () => {
      if (!wrote) return
      if (before === null) fs.rmSync(path, { force: true })
      else writeFileAtomic(path, before, { mode, owner })
    },
  }
}

function reachStep(reach: Reach, claim: Claim, policy: EgressPolicy): Step {
  return {
    name: 'reach',
    apply: async () => {
      const changed = await reach.change({ policy }, claim, 0)
      if (!changed.ok) throw new Error(changed.message)
    },
    undo: async () => void (await reach.change({ policy: openPolicy }, claim, 0)),
  }
}

/** The kernel's host name through /proc, where a file cannot be replaced. */
function hostnameStep(path: string, hostname: string): Step {
  let before: string | null = null
  return {
    name: 'host name',
    apply: () => {
      before = readTextOrNull(path)
      fs.writeFileSync(path, hostname)
    },
    undo: () => {
      if (before !== null) fs.writeFileSync(path, before.trim())
    },
  }
}

/** Null if every step is done. Otherwise the failure; every step is undone, last first. */
async function applyAll(all: readonly Step[], log: Logger): Promise<string | null> {
  const begun: Step[] = []
  try {
    for (const step of all) {
      begun.unshift(step)
      await step.apply()
    }
    return null
  } catch (error) {
    const failure = wrapFault(error, `claim: ${begun[0]?.name}`).message
    log.error('claim failed', { failure })
    for (const step of begun) {
      try {
        await step.undo()
      } catch (undoError) {
        log.error('claim not undone', { step: step.name, reason: messageOf(undoError) })
      }
    }
    return failure
  }
}

function openClaim(
  bytes: Uint8Array | null,
  platform: GatewaySettings['platform'],
): { ok: true; claim: Claim } | Refusal {
  if (bytes === null) return refuse('bad_claim', 'claim: cannot be decrypted with the key of this guest')
  const claim = jsonOf(decodeText(bytes) ?? '')
  if (!matches(Claim, claim)) return refuse('bad_claim', 'claim: decrypted, but its format is unknown')
  const problem = claimProblem(claim, platform)
  if (problem !== null) return refuse('bad_claim', problem)
  return { ok: true, claim }
}

function decodeText(bytes: Uint8Array): string | null {
  try {
    return fromUtf8(bytes)
  } catch {
    return null
  }
}

function readRecord(paths: Pick<GuestPaths, 'claimRecord'>): ClaimRecord | null {
  const record = jsonOf(readTextOrNull(paths.claimRecord) ?? 'null')
  return matches(ClaimRecord, record) ? record : null
}
